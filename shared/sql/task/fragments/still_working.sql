-- As `still_planned`.
CASE WHEN t.state = 'WORK' THEN true ELSE false END

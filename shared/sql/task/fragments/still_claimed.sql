-- As `still_planned`.
CASE WHEN t.state = 'TAKE' THEN true ELSE false END

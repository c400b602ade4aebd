-- Not started within `active`. An `active` of 200,000 years and more never ends (and must not overflow).
(t."max" >= 0 AND t.plan <= statement_timestamp() AND CASE WHEN t.active < interval '200000 years'
    THEN t.plan + t.active <= statement_timestamp() ELSE false END)

-- Of the many, so that their index is used.
AND t.id = ANY (:ids::bigint[])

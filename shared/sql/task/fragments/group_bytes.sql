-- Group and remote of a row as bytes: a SQL_ASCII database has texts that are no UTF-8.
pg_catalog.convert_to(t."group"::text, pg_catalog.getdatabaseencoding()) AS "group",
       pg_catalog.convert_to(t.remote::text, pg_catalog.getdatabaseencoding()) AS remote

-- A task whose end is a change of its own row, and which can be handed down by a fork. A delimiter may be a "char" or,
-- in a table made by hand, a text: one byte over 127 (the comparison of "char" knows no sign) is no text and not
-- handed down. Nor is anything of a database whose texts may be any bytes: the scheduler's session speaks UTF-8, and
-- refuses them.
t.remote IS NULL AND NOT t.atomic AND t.job IS NULL AND t."max" >= 0 AND t.repeat = interval '0'
       AND t.count = 0 AND t.live = interval '0' AND t.delimiter <= '~' AND t.escape <= '~' AND t.quote <= '~'
       AND pg_catalog.getdatabaseencoding() <> 'SQL_ASCII'

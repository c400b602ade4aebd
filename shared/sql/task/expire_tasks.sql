-- Rows that nobody started in time. An `active` of 200,000 years and more never ends (and must not overflow).
-- parameters: none; locks: the rows; caller: scheduler, before a take
UPDATE {queue} SET state = 'GONE', start = statement_timestamp(), stop = statement_timestamp(),
       error = 'ERROR:  task not active', reason = 'expired'
 WHERE state = 'PLAN' AND NOT held AND "max" >= 0 AND plan <= statement_timestamp()
   AND CASE WHEN active < interval '200000 years' THEN plan + active <= statement_timestamp() ELSE false END

-- Reads whether a waiting or running row has a missing or wrong hash.
-- parameters: none
-- locks: none
-- caller: scheduler, when the hash is a plain column
SELECT EXISTS (SELECT FROM {queue} WHERE state IN ('PLAN', 'TAKE', 'WORK')
                  AND hash IS DISTINCT FROM pg_catalog.hashtext("group" || COALESCE(remote, ''))) AS missing

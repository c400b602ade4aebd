-- What a claim of the scheduler returns of its rows. Its commit waits for the disk only if it has to: `lazy` says that
-- nothing else is in its transaction.
(SELECT pg_catalog.set_config('synchronous_commit', 'off', true)
          WHERE :lazy::bool AND NOT EXISTS (SELECT FROM taken j WHERE j.job IS NOT NULL OR j.backend IS NOT NULL)),
       {begin_columns}

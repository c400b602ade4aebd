-- Reads the version of the catalog. The same question in every version.
-- parameters: none
-- locks: the marker table, shared
-- caller: scheduler, as whoever is admitted
SELECT mill.s_version() AS version

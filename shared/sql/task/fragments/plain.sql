-- Whether a row can be handed down by a fork, where that is asked for: because connections are reserved, or because
-- workers with a connection of their own want it so.
CASE WHEN cardinality(:reserved_backends::int[]) > 0 OR :return_plain::bool THEN {plain_row} AND octet_length(t.input) <= :longest_input::int ELSE false END AS plain

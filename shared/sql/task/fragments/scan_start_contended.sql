-- And where others of the group claim at the same time. Rows that they are just claiming are passed over anyway, but
-- to try to lock such a row costs more than the row does that is found at last; whoever has locked a row stands in its
-- xmax, also for a while afterwards, so only those who came just now count. A row that is passed over so and was free
-- already (a claim has locked it and left it, because it wants to be alone) is found by one of the next claims, or by
-- the scheduler.
{scan_start}
       AND (t.xmax = '0'::xid OR age(t.xmax) > 100)

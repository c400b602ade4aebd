-- One more; a row that somebody inserted with the largest number begins anew, or it would fail the claim of all.
CASE WHEN t.attempt < 2147483647 THEN t.attempt + 1 ELSE 1 END

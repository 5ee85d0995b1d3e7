DROP INDEX "{prefix}published_held";
DROP INDEX "{prefix}received_held";

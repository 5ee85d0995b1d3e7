ALTER TABLE {schema}`{prefix}published` DROP KEY by_held, DROP COLUMN held;
ALTER TABLE {schema}`{prefix}received` DROP KEY by_held, DROP COLUMN held;

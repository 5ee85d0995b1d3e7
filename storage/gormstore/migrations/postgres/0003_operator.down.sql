DROP INDEX {schema}"{prefix}published_held";
DROP INDEX {schema}"{prefix}received_held";

-- dagster: group=shop owners=team:shop
-- One row per user, the newest: the file only ever grows, and a user who moves gets another line.
CREATE TABLE users AS
SELECT user_id PRIMARY KEY, name, city, tier
FROM file://data/users.jsonl;

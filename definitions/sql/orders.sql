-- dagster: group=shop owners=team:shop
-- Every order as it came in: one CSV file per day, which grows while the day lasts.
CREATE TABLE orders AS
SELECT order_id, user_id, product, amount, ordered_at
FROM file://data/orders-*.csv
WITH ("watch" = "true");

-- dagster: group=reports owners=team:finance
-- What each user has spent so far, to the cent.
CREATE TABLE user_spending AS
SELECT user_id PRIMARY KEY, COUNT(*) AS orders, SUM(amount) AS spent
FROM orders
GROUP BY user_id;

-- dagster: group=reports owners=team:finance
-- Orders with the user as he is known now; when a user's line changes, his orders follow.
CREATE TABLE orders_by_city AS
SELECT u.city, u.tier, COUNT(*) AS orders, SUM(o.amount) AS revenue
FROM orders o JOIN users u ON o.user_id = u.user_id
GROUP BY u.city, u.tier;

-- dagster: group=reports owners=team:finance
-- Orders above the average of their product.
CREATE TABLE expensive_orders AS
SELECT o.order_id, o.product, o.amount
FROM orders o
WHERE o.amount > (SELECT AVG(p.amount) FROM orders p WHERE p.product = o.product);

-- Every route: a COPY finds the queues of its jobs itself.
SELECT pattern, queue FROM posthaste.route

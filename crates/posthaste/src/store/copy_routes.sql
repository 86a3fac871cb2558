-- All routes: COPY maps names to queues in the program.
SELECT pattern, queue FROM posthaste.route

# Waits for a line before it becomes the command, so that nothing runs that nobody watches over.
# Without one the worker is gone. $@ is the command; the rest of the input is the command's.
read -r posthaste_go || exit 75
unset posthaste_go
exec "$@"

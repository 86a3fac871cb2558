# Waits until its owner lets go of its standard input, which the kernel does for an owner that was
# killed, and then removes what the owner left behind. $1 says what that is.
trap '' HUP INT TERM
while read -r _; do :; done
case $1 in
process)
    # Not "-KILL --", which dash refuses.
    kill -s KILL -- "-$2" 2>/dev/null
    ;;
session)
    # Watchdogs among them do not hear it, and clean up behind the others.
    for stat in /proc/[0-9]*/stat; do
        read -r line 2>/dev/null <"$stat" || continue
        pid=${line%% *}
        # Behind the name, which may hold spaces: state, parent, group, session.
        # shellcheck disable=SC2086
        set -- "$1" "$2" ${line##*) }
        [ "$6" != "$2" ] || kill -s TERM "$pid" 2>/dev/null
    done
    ;;
folder)
    # Its users are killed at the same time, and the last of them may still be writing.
    for pause in 0 0.1 0.3 1 3; do
        sleep "$pause"
        rm -rf -- "$2" 2>/dev/null && sleep 0.1 && [ ! -e "$2" ] && break
    done
    ;;
server)
    folder=$2
    read -r pid 2>/dev/null <"$folder/data/postmaster.pid" || pid=
    # A stale file may name a number that belongs to somebody else by now.
    if [ -n "$pid" ] && { [ ! -d /proc/self ] || [ "/proc/$pid/cwd" -ef "$folder/data" ]; }; then
        kill -s QUIT "$pid" 2>/dev/null
        turns=0
        while [ -e "$folder/data/postmaster.pid" ] && kill -0 "$pid" 2>/dev/null; do
            turns=$((turns + 1))
            [ "$turns" -eq 200 ] && kill -s KILL "$pid" 2>/dev/null && break
            sleep 0.05
        done
    fi
    # The last of its processes may still be writing.
    for _ in 1 2 3 4 5; do
        rm -rf -- "$folder" 2>/dev/null && break
        sleep 0.1
    done
    ;;
esac

# Ends the process groups of commands whose worker is gone.
# The input says which there are: "+ N" when one begins, "- N" when it has ended. The input itself
# ends with the worker, however that went.
trap '' HUP INT TERM
groups=' '
while read -r sign group; do
    case $sign,$groups in
    +,*) groups="$groups$group " ;;
    -,*" $group "*) groups="${groups%%" $group "*} ${groups#*" $group "}" ;;
    esac
done
for group in $groups; do
    kill -s KILL -- "-$group"
done

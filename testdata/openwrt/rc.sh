# What an init script of OpenWrt finds: uci, the functions of /lib/functions.sh and of procd, as
# far as ours uses them. $STATE is a folder: an option is the file CONFIG.SECTION.OPTION, with one
# value on each line. It is a list if it has several, or if FILE.list is there. $STATE/log has what was called.
# shellcheck shell=dash disable=SC2034,SC3043,SC2154

note() { echo "$*" >>"$STATE/log"; }

uci() {
	[ "$1" != -q ] || shift
	local verb=$1 name=${2%%=*} value=${2#*=}
	local file="$STATE/$name"
	case $verb in
	get)
		[ -f "$file" ] || return 1
		tr '\n' ' ' <"$file" | sed 's/ $//'
		;;
	set) if [ -n "$value" ]; then echo "$value" >"$file"; else rm -f "$file"; fi ;;
	add_list)
		echo "$value" >>"$file"
		touch "$file.list"
		;;
	del_list)
		[ -f "$file" ] || return 1
		[ -f "$file.list" ] || [ "$(wc -l <"$file")" -gt 1 ] || return 0
		touch "$file.list"
		grep -vxF -e "$value" "$file" >"$file.new"
		mv "$file.new" "$file"
		[ -s "$file" ] || rm "$file" "$file.list"
		;;
	delete)
		[ -f "$file" ] || return 1
		rm -f "$file" "$file".*
		;;
	commit) note "commit $name" ;;
	*) note "uci: unknown $*" ;;
	esac
}

config_load() { CONFIG=$1; }
config_get() {
	local value
	value=$(uci get "$CONFIG.$2.$3") || value=${4:-}
	eval "$1=\$value"
}
config_get_bool() { config_get "$@"; }

# server is the program of the package, which the commands of the script call.
server() {
	note "server $*"
	[ "$1" != why ]
}
logger() { note "log $*"; }
procd_kill() { note "kill $*"; }
chown() { note "chown $*"; }
dnsmasq_init() { note "dnsmasq $*"; }
DNSMASQ=dnsmasq_init
for f in open_instance set_param add_jail add_jail_mount add_jail_mount_rw close_instance; do
	eval "procd_$f() { note \"procd $f \$*\"; }"
done

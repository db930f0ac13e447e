#!/bin/bash
# SuspendProgram and ResumeProgram for machines with a management board. Install it twice:
#
#   install -m 755 power-nodes.sh /usr/sbin/power-suspend
#   ln -s power-suspend /usr/sbin/power-resume
#
#   SuspendProgram=/usr/sbin/power-suspend
#   ResumeProgram=/usr/sbin/power-resume
#
# gctld calls it with the nodes' names as one host list, and may call it twice for the same nodes: after another
# controller has taken over. So each action here does nothing to a node that is already as it should be. What it prints
# is in gctld's log. For a cloud, replace on and off by the provider's command line: create an instance named after the
# node if there is none, and delete it if there is one.
set -u

password=/etc/gbatch/bmc.password # owned by SlurmUser, mode 0600
user=${BMC_USER:-admin}
at_once=16

bmc() { ipmitool -I lanplus -H "$1-bmc" -U "$user" -f "$password" "${@:2}"; }
on() { bmc "$1" chassis power status | grep -q ' is on' || bmc "$1" chassis power on; }
off() { bmc "$1" chassis power status | grep -q ' is off' || bmc "$1" chassis power soft; }

one() {
	case $2 in
	*resume*) on "$1" ;;
	*) off "$1" ;;
	esac || echo "$1: failed"
}

if [ "${1-}" = --one ]; then
	one "$2" "$3"
	exit
fi
gcontrol show hostnames "$1" | xargs -r -P "$at_once" -I NODE "$0" --one NODE "${0##*/}"

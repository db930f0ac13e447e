#!/usr/bin/env python3
# JobSubmitProgram=/etc/gbatch/hook-account-by-group.py: charges a job to the account of its user's group. A job may name
# another account only if one of the user's groups has it. Users without such a group are left alone. See
# gbatch-hooks(7).
import grp
import json
import sys

ACCOUNT = {"physics": "phys", "chem": "chemistry"}  # of a group; the first of a user's groups counts


def accounts(gids):
    names = []
    for gid in gids:
        try:
            names.append(grp.getgrgid(gid).gr_name)
        except KeyError:
            pass
    return [ACCOUNT[n] for n in names if n in ACCOUNT]


def main():
    call = json.load(sys.stdin)
    user = call["user"]
    mine = accounts([user["gid"]] + (user["gids"] or []))
    wants = call["job"].get("account") if call["action"] == "submit" else call["changes"].get("account")
    if not mine or user["operator"]:
        return {}
    if wants and wants.lower() not in mine:
        return {"refuse": "account %s is not one of your groups': %s" % (wants, ", ".join(sorted(set(mine))))}
    if wants or call["action"] != "submit":
        return {}
    return {"set": {"account": mine[0]}}


json.dump(main(), sys.stdout)

package cron

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // zones that this host may lack
)

const layout = "Mon 2006-01-02 15:04 MST"

func TestNext(t *testing.T) {
	for _, c := range []struct {
		times, zone, after string
		want               []string // one after the other
	}{
		{"* * * * *", "UTC", "2026-11-30 00:49:55", []string{"Mon 2026-11-30 00:50 UTC", "Mon 2026-11-30 00:51 UTC"}},
		{"* * * * *", "UTC", "2026-11-30 00:49:00", []string{"Mon 2026-11-30 00:50 UTC"}},
		{"*/20 * * * *", "UTC", "2026-11-30 00:49:00", []string{"Mon 2026-11-30 01:00 UTC", "Mon 2026-11-30 01:20 UTC"}},
		{"5-25/10 8,20 * * *", "UTC", "2026-11-30 08:20:00", []string{"Mon 2026-11-30 08:25 UTC",
			"Mon 2026-11-30 20:05 UTC"}},
		{"0 0 1 1 *", "UTC", "2026-11-30 08:20:00", []string{"Fri 2027-01-01 00:00 UTC", "Sat 2028-01-01 00:00 UTC"}},
		{"0 12 29 2 *", "UTC", "2026-11-30 08:20:00", []string{"Tue 2028-02-29 12:00 UTC", "Sun 2032-02-29 12:00 UTC"}},
		{"0 12 29 2 *", "UTC", "2097-11-30 08:20:00", []string{"Fri 2104-02-29 12:00 UTC"}},
		{"0 6 31 * *", "UTC", "2026-11-30 08:20:00", []string{"Thu 2026-12-31 06:00 UTC", "Sun 2027-01-31 06:00 UTC",
			"Wed 2027-03-31 06:00 UTC"}},
		// a day in either field counts
		{"0 6 13 * fri", "UTC", "2026-11-30 08:20:00", []string{"Fri 2026-12-04 06:00 UTC", "Fri 2026-12-11 06:00 UTC",
			"Sun 2026-12-13 06:00 UTC"}},
		{"0 6 * * fri", "UTC", "2026-11-30 08:20:00", []string{"Fri 2026-12-04 06:00 UTC", "Fri 2026-12-11 06:00 UTC"}},
		{"0 6 * * 7", "UTC", "2026-11-30 08:20:00", []string{"Sun 2026-12-06 06:00 UTC"}},
		{"0 6 * * mon-wed,sat-sun", "UTC", "2026-12-02 08:20:00", []string{"Sat 2026-12-05 06:00 UTC",
			"Sun 2026-12-06 06:00 UTC", "Mon 2026-12-07 06:00 UTC"}},
		{"0 6 1 jan,Jul *", "UTC", "2026-12-02 08:20:00", []string{"Fri 2027-01-01 06:00 UTC", "Thu 2027-07-01 06:00 UTC"}},
		{"@weekly", "UTC", "2026-12-02 08:20:00", []string{"Sun 2026-12-06 00:00 UTC"}},
		{"@monthly", "UTC", "2026-12-02 08:20:00", []string{"Fri 2027-01-01 00:00 UTC"}},
		{"@Hourly", "UTC", "2026-12-02 23:20:00", []string{"Thu 2026-12-03 00:00 UTC"}},
		// clocks go forward: what is due in the hour that is missing is due at its end, once
		{"30 2 * * *", "Europe/Berlin", "2026-03-28 12:00:00", []string{"Sun 2026-03-29 03:00 CEST",
			"Mon 2026-03-30 02:30 CEST"}},
		{"*/30 2 * * *", "Europe/Berlin", "2026-03-28 12:00:00", []string{"Sun 2026-03-29 03:00 CEST",
			"Mon 2026-03-30 02:00 CEST"}},
		{"30 * * * *", "Europe/Berlin", "2026-03-29 01:00:00", []string{"Sun 2026-03-29 01:30 CET",
			"Sun 2026-03-29 03:30 CEST"}},
		{"30 2 * * 6", "Europe/Berlin", "2026-03-28 12:00:00", []string{"Sat 2026-04-04 02:30 CEST"}},
		{"0 0 * * *", "America/Sao_Paulo", "2018-11-03 12:00:00", []string{"Sun 2018-11-04 01:00 -02",
			"Mon 2018-11-05 00:00 -02"}},
		// clocks go back: certain hours once, every hour twice
		{"30 2 * * *", "Europe/Berlin", "2026-10-24 12:00:00", []string{"Sun 2026-10-25 02:30 CEST",
			"Mon 2026-10-26 02:30 CET"}},
		{"30 * * * *", "Europe/Berlin", "2026-10-25 01:00:00", []string{"Sun 2026-10-25 01:30 CEST",
			"Sun 2026-10-25 02:30 CEST", "Sun 2026-10-25 02:30 CET", "Sun 2026-10-25 03:30 CET"}},
		{"*/15 1-3 * * *", "Australia/Lord_Howe", "2026-04-05 01:20:00", []string{"Sun 2026-04-05 01:30 +11",
			"Sun 2026-04-05 01:45 +11", "Sun 2026-04-05 02:00 +1030", "Sun 2026-04-05 02:15 +1030"}},
	} {
		s, err := ParseTimes(c.times)
		if strings.HasPrefix(c.times, "@") {
			s, _, err = Parse(c.times)
		}
		if err != nil {
			t.Errorf("%s: %v", c.times, err)
			continue
		}
		zone, err := time.LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		at, err := time.ParseInLocation(time.DateTime, c.after, zone)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range c.want {
			at = s.Next(at)
			if got := at.Format(layout); got != want {
				t.Errorf("%s in %s after %s, moment %d: %s, want %s", c.times, c.zone, c.after, i, got, want)
				break
			}
		}
	}
}

// TestNextIsTheFirst compares Next with a look at every minute.
func TestNextIsTheFirst(t *testing.T) {
	for _, zone := range []string{"UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata"} {
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		for _, times := range []string{"7 * * * *", "*/13 */7 * * *", "0 4 2,30 * *", "59 23 * 3,11 0", "1 1 1 * 3"} {
			s, err := ParseTimes(times)
			if err != nil {
				t.Fatal(err)
			}
			at := time.Date(2026, 3, 1, 0, 0, 0, 0, loc)
			next := s.Next(at)
			for range 60 * 24 * 60 {
				at = at.Add(time.Minute)
				shown := time.Date(at.Year(), at.Month(), at.Day(), at.Hour(), at.Minute(), 0, 0, time.UTC)
				is := s.inGap(at) || s.matches(shown) && (s.hourly() || !repeated(at))
				if is != at.Equal(next) {
					t.Fatalf("%s in %s: %s is one: %v, and Next gave %s", times, zone, at, is, next)
				}
				if is {
					next = s.Next(at)
				}
			}
		}
	}
}

func TestRefusedTimes(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"", "column 1: the minute is missing"},
		{"5 4 * *", "column 8: the day of the week is missing"},
		{"60 4 * * * x", "column 1: minute '60': '60' is not a number from 0 to 59"},
		{"5 24 * * * x", "column 3: hour '24': '24' is not a number from 0 to 23"},
		{"5 4 0 * * x", "column 5: day of the month '0': '0' is not a number from 1 to 31"},
		{"5 4 1 foo * x", "column 7: month 'foo': 'foo' is not a number from 1 to 12 or one of jan to dec"},
		{"5 4 1 * 8 x", "column 9: day of the week '8': '8' is not a number from 0 to 7 or one of sun to sat"},
		{"1,2,70 4 * * * x", "column 5: minute '1,2,70': '70' is not"},
		{"9-5 4 * * * x", "column 1: minute '9-5': the range goes down; write 9-59,0-5"},
		{"5/15 4 * * * x", "column 1: minute '5/15': a step follows * or a range: write 5-59/15"},
		{"*/0 4 * * * x", "column 3: minute '*/0': the step '0' is not a number from 1 to 59"},
		{"*/x 4 * * * x", "column 3: minute '*/x': the step 'x'"},
		{"1,,2 4 * * * x", "column 3: minute '1,,2': '' is not"},
		{"0 0 31 2 * x", "column 5: there is no day 31 in month 2: the entry would never run"},
		{"0 0 31 4,6,9,11 * x", "column 5: there is no day 31"},
		{"0 0 30,31 feb * x", "column 5: there is no day 30,31 in month feb"},
		{"@reboot x", "column 1: '@reboot' is no time: the words are @yearly"},
	} {
		_, _, err := Parse(c.line)
		var e *Error
		if !errors.As(err, &e) || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%q: %v, want %s", c.line, err, c.want)
		}
	}
	for _, fine := range []string{"0 0 29 2 * x", "0 0 31 2 1 x", "0 0 31 1,2 * x"} {
		if _, _, err := Parse(fine); err != nil {
			t.Errorf("%q: %v", fine, err)
		}
	}
}

func TestRead(t *testing.T) {
	text := `# my jobs
DIR=/home/ann
 NAME = "a b "

#SCRON -p gpu --time=5
# between
#SCRON -n 2
5 4 * * *	$DIR/run.sh ${NAME}$DIRECTORY $HOME $DIR2 '${DIR'
#SCRONX is a comment
DIR=/scratch
@hourly FOO=1 $DIR/x  # a comment for the shell
#SCRON -p gpu
`
	list, err := Read(text)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, e := range list {
		fmt.Fprintf(&got, "%d-%d %s | %s |%v\n", e.First, e.Last, e.Schedule, e.Command, e.Options)
	}
	want := `5-8 5 4 * * * | /home/ann/run.sh a b $DIRECTORY $HOME $DIR2 '${DIR' |[{5  -p gpu --time=5} {7  -n 2}]
11-11 0 * * * * | FOO=1 /scratch/x  # a comment for the shell |[]
`
	if got.String() != want {
		t.Errorf("got\n%swant\n%s", got.String(), want)
	}
	marked := Mark("a\nb\nc", "#DISABLED: ", func(n int) bool { return n == 2 })
	if marked != "a\n#DISABLED: b\nc\n" {
		t.Errorf("marked: %q", marked)
	}
	if _, err := Read("# x\n5 4 * * 9 x\n"); err == nil || !strings.HasPrefix(err.Error(), "line 2: column 9: day of") {
		t.Error(err)
	}
	if _, err := Read("5 4 * * 1 \n"); err == nil || !strings.Contains(err.Error(), "the command is missing") {
		t.Error(err)
	}
	if _, err := Read(strings.Repeat("@hourly x\n", MaxEntries+1)); err == nil ||
		err.Error() != "line 257: a crontab has at most 256 entries" {
		t.Error(err)
	}
	if _, err := Read(strings.Repeat("# x\n", MaxText)); err == nil ||
		!strings.Contains(err.Error(), "at most 65536 bytes") {
		t.Error(err)
	}
	if _, err := Read("V=" + strings.Repeat("x", 4000) + "\n@hourly $V$V$V\n"); err == nil {
		t.Error("a command grew over its limit")
	}
}

func FuzzRead(f *testing.F) {
	f.Add("A=b\n#SCRON -n1\n*/5 1-3,5 * jan mon-fri $A ${A}\n@daily x\n")
	f.Fuzz(func(t *testing.T, text string) {
		list, err := Read(text)
		if err != nil {
			var e *LineError
			if !errors.As(err, &e) || e.Line < 1 {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		for _, e := range list {
			again, err := ParseTimes(e.Schedule.String())
			if err != nil || *again != *e.Schedule {
				t.Fatalf("%s is read again as %v, %v", e.Schedule, again, err)
			}
			if e.First < 1 || e.Last < e.First || e.Command == "" || len(e.Command) > MaxCommand {
				t.Fatalf("%+v", e)
			}
			after := time.Date(2026, 1, 31, 23, 59, 0, 0, time.UTC)
			if next := e.Schedule.Next(after); !next.After(after) {
				t.Fatalf("%s after %s: %s", e.Schedule, after, next)
			}
		}
	})
}

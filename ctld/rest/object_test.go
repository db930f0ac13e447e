package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gbatch/internal/model"
	"gbatch/internal/proto"
)

// TestForms: a member is read in each of the forms in which Slurm's parser takes it, and what it can't be is named.
func TestForms(t *testing.T) {
	noon, err := time.ParseInLocation("2006-01-02T15:04:05", "2037-05-01T12:00:00", time.Local)
	if err != nil {
		t.Fatal(err)
	}
	told := func(read func(o *object) number) func(o *object) string {
		return func(o *object) string {
			n := read(o)
			return fmt.Sprint(n.v, n.set, n.infinite, n.given)
		}
	}
	count := told(func(o *object) number { return o.count("x") })
	moment := told(func(o *object) number { return o.moment("x") })
	memory := told(func(o *object) number { return o.memory("x") })
	words := func(o *object) string { list, ok := o.words("x"); return fmt.Sprint(list, ok) }
	list := func(o *object) string { list, ok := o.list("x"); return fmt.Sprint(list, ok) }
	truth := func(o *object) string { is, given := o.boolean("x"); return fmt.Sprint(is, given) }
	const five, wrong = "5 true false true", "!"
	for _, x := range []struct {
		read func(o *object) string
		body string
		want string // after ! a part of the error
	}{
		{count, `5`, five}, {count, `"5"`, five}, {count, `5.0`, five}, {count, `{"set":true,"number":5}`, five},
		{count, `{"set":"true","infinite":"no","number":"5"}`, five}, {count, `{"number":5}`, five},
		{count, `{"set":1,"infinite":0,"number":5}`, five},
		{count, `{"set":"false","number":5}`, "0 false false true"}, {count, `null`, "0 false false false"},
		{count, `{"infinite":"yes","number":5}`, "0 false true true"}, {count, `"Infinity"`, "0 false true true"},
		{count, `"INFINITE"`, "0 false true true"}, {count, `""`, "0 false false true"},
		{count, `-5`, wrong + "x: a number from 0 on is expected, and not -5"},
		{count, `{"set":true,"number":-1}`, wrong + "from 0 on"}, {count, `"-7"`, wrong + "from 0 on"},
		{count, `{"set":true}`, wrong + "a number is expected"},
		{count, `{"set":"perhaps","number":1}`, wrong + "a number"},
		{count, `"many"`, wrong + "a number is expected"}, {count, `[5]`, wrong + "a number is expected"},
		{moment, `5`, five}, {moment, `"5"`, five}, {moment, `{"set":true,"number":5}`, five},
		{moment, `"2037-05-01T12:00:00"`, fmt.Sprint(float64(noon.Unix()), true, false, true)},
		{moment, `"someday"`, wrong + "a moment"}, {moment, `-5`, wrong + "from 0 on"},
		{memory, `5`, five}, {memory, `"5"`, five}, {memory, `"5M"`, five}, {memory, `"5G"`, "5120 true false true"},
		{memory, `"5X"`, wrong + "a number"}, {memory, `-5`, wrong + "from 0 on"},
		{words, `["A=b,c","B=1"]`, "[A=b,c B=1] true"}, {words, `{"PATH":"/bin","A":"b,c","N":7,"T":true}`,
			"[A=b,c N=7 PATH=/bin T=true] true"}, {words, `"A=b,c"`, "[A=b,c] true"}, {words, `null`, "[] false"},
		{words, `{}`, "[] true"}, {words, `{"A":["b"]}`, wrong + "x.A: a text is expected"},
		{words, `{"A":null}`, wrong + "x.A: a text is expected"},
		{list, `["a","b"]`, "[a b] true"}, {list, `"a,b"`, "[a b] true"}, {list, `[7,true]`, "[7 true] true"},
		{list, `7`, "[7] true"}, {list, `{"a":1}`, wrong + "a list of texts"},
		{truth, `true`, "true true"},
		{truth, `"yes"`, "true true"}, {truth, `1`, "true true"}, {truth, `0.0`, "false true"},
		{truth, `"Off"`, "false true"}, {truth, `null`, "false false"}, {truth, `"perhaps"`, wrong + "true or false"},
		{func(o *object) string { return o.span("x") }, `[1,2]`, "1-2"},
		{func(o *object) string { return o.span("x") }, `["3"]`, "3"},
		{func(o *object) string { return o.span("x") }, `"2-4"`, "2-4"},
		{func(o *object) string { return o.span("x") }, `4`, "4"},
		{func(o *object) string { return o.span("x") }, `[1,2,3]`, wrong + "the least and the most"},
		{func(o *object) string { return o.span("x") }, `[-1]`, wrong + "the least and the most"},
	} {
		var m map[string]any
		d := json.NewDecoder(strings.NewReader(`{"x":` + x.body + `}`))
		d.UseNumber()
		if err := d.Decode(&m); err != nil {
			t.Fatal(err)
		}
		o := &object{m: m, read: map[string]bool{}}
		got := x.read(o)
		if says, is := strings.CutPrefix(x.want, wrong); is {
			if o.err == nil || !strings.Contains(fmt.Sprint(asFault(o.err, "").Detail), says) {
				t.Errorf("%s: %s, %v; want the error %q", x.body, got, o.err, says)
			}
		} else if got != x.want || o.err != nil || len(o.unread()) > 0 {
			t.Errorf("%s: %s, %v, unread %v; want %s", x.body, got, o.err, o.unread(), x.want)
		}
	}
}

// named is a controller whose user database has a user with a name of digits.
type named struct{ Cluster }

func (named) User(_ context.Context, name string) (*proto.Caller, error) {
	if uid, is := map[string]uint32{"1234": 77, "ann": 1}[name]; is {
		return &proto.Caller{UID: uid, User: name}, nil
	}
	return nil, errors.New(name + " is unknown")
}

// TestUsersOfParameter: digits are a number, unless they are a user's name.
func TestUsersOfParameter(t *testing.T) {
	q := &request{s: &Server{o: Options{Cluster: named{}}}, ctx: t.Context(), op: &operations()[0], ver: "v0.0.44"}
	got, err := q.users([]string{"ann", "1234", "5678", "bob"})
	if err != nil || !slices.Equal(got, []uint32{1, 77, 5678, model.NoID}) {
		t.Errorf("users are %v, %v", got, err)
	}
}

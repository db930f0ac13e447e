package state

import (
	"fmt"
	"reflect"
	"testing"

	"gbatch/internal/plain"
)

const hostileText = "x\x1b[31m\n4242|root\u202e\u009b\xff"

// hostile fills all empty strings of a value, and gives the paths of those with characters that are not plain.
func hostile(v reflect.Value, path string, fill bool, found map[string]bool) {
	switch v.Kind() {
	case reflect.String:
		if fill && v.CanSet() {
			v.SetString(hostileText)
		} else if plain.Check(v.String()) != nil {
			found[path] = true
		}
	case reflect.Pointer:
		if !v.IsNil() {
			hostile(v.Elem(), path, fill, found)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				hostile(v.Field(i), path+"."+f.Name, fill, found)
			}
		}
	case reflect.Slice:
		if fill && v.Len() == 0 && v.CanSet() && v.Type().Elem().Kind() == reflect.String {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		}
		for i := range v.Len() {
			hostile(v.Index(i), path+"[]", fill, found)
		}
	}
}

// TestTextsArePlain: whatever a controller lets through, no text of a new command gets into the facts with characters
// that act on a terminal or end a line. Only what programs use as it is keeps them, and so do commands of before.
func TestTextsArePlain(t *testing.T) {
	kept := map[string]bool{"*state.Submit.Spec.Args[]": true, "*state.Submit.RequestID": true,
		"*state.Edit.Spec.Args[]": true, "*state.Once.Key": true,
		"*state.SubmitHet.Parts[].Spec.Args[]": true, "*state.SubmitHet.RequestID": true,
		"*state.Triggers.Set.Program":       true,
		"*state.Crontab.Jobs[].Spec.Args[]": true, "*state.Crontab.Jobs[].RequestID": true}
	texts := 0
	for _, b := range all() {
		name := fmt.Sprintf("%T", b)
		hostile(reflect.ValueOf(b), name, true, nil)
		if r, ok := b.(*Reserve); ok {
			r.Resv.Nodes = []string{"n1", "n2"} // they are in order
		}
		if tr, ok := b.(*Triggers); ok && tr.Set != nil {
			tr.Set.Program, tr.Set.Nodes = "/"+hostileText, "n1"
		}
		data, err := Encode(sampleAt, b)
		if err != nil {
			t.Fatal(err)
		}
		was, is := map[string]bool{}, map[string]bool{}
		old, err := Decode(data[:len(data)-1])
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		hostile(reflect.ValueOf(old.Body), name, false, was)
		texts += len(was)
		c, err := Decode(data)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		hostile(reflect.ValueOf(c.Body), name, false, is)
		for path := range is {
			if !kept[path] && b.kind() != KindConfig {
				t.Errorf("%s is not plain", path)
			}
		}
		if !reflect.DeepEqual(old.Body, b) && b.kind() != KindAccounts {
			t.Errorf("%s: a command of before has changed:\n%+v\n%+v", name, old.Body, b)
		}
	}
	if texts < 80 {
		t.Errorf("the commands have %d texts: are they all filled?", texts)
	}
}

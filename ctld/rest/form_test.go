package rest

import (
	"bytes"
	"compress/gzip"
	"hash/crc32"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// TestZip: pieces that were compressed by themselves and plain ones make one stream.
func TestZip(t *testing.T) {
	shared := [][]byte{}
	z := newZipper(func(b []byte) error { shared = append(shared, b); return nil })
	var want bytes.Buffer
	var p parts
	_, _ = p.Write([]byte(`{"meta":{`))
	want.WriteString(`{"meta":{`)
	for range 3 {
		part := []byte(strings.Repeat(`{"job_id":1,"name":"x"},`, 1000))
		want.Write(part)
		if _, err := z.Write(part); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.end(); err != nil {
		t.Fatal(err)
	}
	z.free()
	p.shared(shared, true)
	long := `},"text":"` + strings.Repeat("long ", stored) + `","errors":[]}` // it is compressed too
	for _, plain := range []string{`},"warnings":[`, long} {
		_, _ = p.Write([]byte(plain))
		want.WriteString(plain)
	}
	h := http.Header{}
	list, total := form{gzip: true}.encode(h, &p)
	all := bytes.Join(list, nil)
	if len(all) != total || h.Get("Content-Encoding") != "gzip" || total > want.Len()/5 {
		t.Errorf("%d bytes, %d are announced, of %d; %v", len(all), total, want.Len(), h)
	}
	r, err := gzip.NewReader(bytes.NewReader(all))
	if err != nil {
		t.Fatal(err)
	}
	r.Multistream(false) // some clients read the first stream only
	got, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%v; %d bytes of %d", err, len(got), want.Len())
	}
}

func TestJoinSums(t *testing.T) {
	for _, n := range []int{0, 1, 7, 100, 65537} {
		a, b := []byte("before"), bytes.Repeat([]byte{0, 1, 0xff}, n)
		got := joinSums(crc32.ChecksumIEEE(a), crc32.ChecksumIEEE(b), int64(len(b)))
		if want := crc32.ChecksumIEEE(append(a, b...)); got != want {
			t.Errorf("%d bytes behind: %x, want %x", len(b), got, want)
		}
	}
}

func TestFormOf(t *testing.T) {
	for _, x := range []struct {
		accept, encoding string
		want             form
	}{{"", "", form{}}, {"*/*", "gzip, deflate", form{gzip: true}}, {"application/yaml", "gzip", form{yaml: true}},
		{"application/json, application/yaml", "", form{}},
		{"text/html, application/x-yaml;q=0.9, */*", "", form{yaml: true}},
		{"application/json", "gzip;q=0, identity", form{}}} {
		r, _ := http.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept", x.accept)
		r.Header.Set("Accept-Encoding", x.encoding)
		if got := formOf(r); got != x.want {
			t.Errorf("%q, %q: %+v, want %+v", x.accept, x.encoding, got, x.want)
		}
	}
}

func TestReadYAML(t *testing.T) {
	got, err := readYAML([]byte("job:\n  name: a\n  tasks: 4\n  hold: true\n  nice: -5\n  x: null\n  y: 1.5\n" +
		"  environment: [A=b, 'C=1']\n  script: |\n    #!/bin/sh\n    true\n  time_limit: {set: true, number: 0x10}\n"))
	if err != nil {
		t.Fatal(err)
	}
	o := &object{m: got, read: map[string]bool{}}
	job := o.object("job")
	list, _ := job.list("environment")
	if n := job.number("time_limit"); job.str("script") != "#!/bin/sh\ntrue\n" || n.v != 16 || job.number("y").v != 1.5 ||
		job.number("nice").v != -5 || !reflect.DeepEqual(list, []string{"A=b", "C=1"}) || o.err != nil {
		t.Errorf("%v %v", got, o.err)
	}
	for _, bad := range []string{"", "7", "- a", "a: *b", "a: &x 1\nb: *x", "a: .inf", "? [a]\n: b",
		"a: " + strings.Repeat("[", 100) + strings.Repeat("]", 100), "a: [", "\x00"} {
		if v, err := readYAML([]byte(bad)); err == nil {
			t.Errorf("%.30q: %v", bad, v)
		}
	}
}

package box

import (
	"slices"
	"testing"

	wish "gbatch/internal/model/container"
	"gbatch/noded/image"
)

func TestArguments(t *testing.T) {
	c := &image.Config{Entrypoint: []string{"/e", "-x"}, WorkDir: "/w"}
	if got := Arguments([]string{"a", "b"}, c, &wish.Wish{}); !slices.Equal(got, []string{"a", "b"}) {
		t.Error(got)
	}
	if got := Arguments([]string{"a"}, c, &wish.Wish{Entry: wish.Yes}); !slices.Equal(got, []string{"/e", "-x", "a"}) {
		t.Error(got)
	}
	if d := Dir(c, &wish.Wish{}); d != "/w" {
		t.Error(d)
	}
	if d := Dir(c, &wish.Wish{WorkDir: "/x"}); d != "/x" {
		t.Error(d)
	}
}

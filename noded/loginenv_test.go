package noded

import (
	"testing"
	"time"
)

func TestLoginWish(t *testing.T) {
	for text, want := range map[string]*loginWish{
		"A=1\x00":                          nil,
		"A=1\x00SLURM_GET_USER_ENV=1\x00":  {limit: loginDefault},
		"SLURM_GET_USER_ENV=20S\x00B=2":    {limit: 20 * time.Second, plain: true},
		"SLURM_GET_USER_ENV=999999L\x00":   {limit: loginMost},
		"SLURM_GET_USER_ENV=S\x00":         {limit: loginDefault, plain: true},
		"SLURM_GET_USER_ENV=nonsense\x00C": {limit: loginDefault},
	} {
		got := wishOf([]byte(text))
		if (got == nil) != (want == nil) || got != nil && *got != *want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}

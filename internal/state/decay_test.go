package state

import (
	"math"
	"math/rand/v2"
	"testing"

	"gbatch/internal/model"
)

// The fixed-point exponential agrees with the floating-point one.
func TestExp2(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		den := 1 + rng.Uint64N(1<<uint(1+rng.IntN(50)))
		num := 1 + rng.Uint64N(1<<uint(1+rng.IntN(50)))
		got := float64(exp2(num, den)) / (1 << 63)
		want := math.Exp2(-float64(num) / float64(den))
		if math.Abs(got-want) > want*1e-12+1e-18 {
			t.Fatalf("2^-(%d/%d) = %v, want %v", num, den, got, want)
		}
	}
	if exp2(7, 7) != one/2 || exp2(14, 7) != one/4 || exp2(1000, 7) != 0 {
		t.Error("whole half-lives are exact")
	}
}

// Usage decays equally whether it is updated often or once.
func TestFadeOftenOrOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		f := Fade{HalfMS: 1 + rng.Int64N(30*86400_000)}
		if rng.IntN(5) == 0 {
			f.HalfMS = 0
		}
		m := Meter{Value: rng.Int64N(1e15), Rate: rng.Int64N(1e10)}
		start, end := model.Time(1e12), model.Time(1e12)
		once, often := m, m
		last := start
		for range 1 + rng.IntN(400) {
			end += model.Time(rng.Int64N(3600_000))
			if rng.IntN(3) > 0 {
				often.Value, last = f.At(often, last, end), end
			}
			_ = f.At(often, last, end) // reading changes nothing
		}
		a, b := f.At(once, start, end), f.At(often, last, end)
		if diff := math.Abs(float64(a - b)); diff > 400+1e-9*float64(a) {
			t.Fatalf("%+v over %d ms with %+v: %d at once, %d in steps", m, end-start, f, a, b)
		}
	}
}

// The closed form is the integral: many short jobs one after the other count like one long job.
func TestFadeIsTheIntegral(t *testing.T) {
	f := Fade{HalfMS: 7 * 86400_000}
	const rate, span = 64_000_000, 10 * 86400_000
	want := 0.0 // sum over minutes
	for ms := int64(0); ms < span; ms += 60_000 {
		age := float64(span-ms-30_000) / float64(f.HalfMS)
		want += 64 * 60 * 1000 * math.Exp2(-age)
	}
	got := float64(f.At(Meter{Rate: rate}, 0, span))
	if math.Abs(got-want) > want*1e-6 {
		t.Errorf("%v, summed up %v", got, want)
	}
	if got := f.At(Meter{Value: 1 << 40}, 0, model.Time(f.HalfMS)); got != 1<<39 {
		t.Errorf("half of 2^40 after a half-life is %d", got)
	}
}

func TestFadeReset(t *testing.T) {
	f := Fade{ResetAt: 5000}
	m := Meter{Value: 100, Rate: 1_000_000}
	for now, want := range map[model.Time]int64{1000: 100, 2000: 1100, 4999: 4099, 5000: 0, 6000: 1000} {
		if got := f.At(m, 1000, now); got != want {
			t.Errorf("at %d: %d, want %d", now, got, want)
		}
	}
	if got := f.At(Meter{Value: math.MaxInt64 - 1, Rate: math.MaxInt64}, 0, 1e9); got != math.MaxInt64 {
		t.Errorf("overflow gives %d", got)
	}
}

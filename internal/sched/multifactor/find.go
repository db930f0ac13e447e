package multifactor

import "hash/maphash"

// finder finds rows by account and user. Computing the priorities of a queue asks it once for each job, so its memory
// lies together; the names of a map's keys would be spread over the heap.
type finder struct {
	seed  maphash.Seed
	slots []slot // a power of two, at most half of them in use
	names []byte // account and user of each row, one after the other
}

// slot is one place of the table.
type slot struct {
	hash uint32
	row  int32  // plus 1; 0: empty
	from uint32 // where in names the account begins
	size uint32 // of the account
	more uint32 // of the user behind it
}

// newFinder makes a finder for some of the rows. Of two rows with the same name it finds the later one.
func newFinder(rows []Share, of func(*Share) bool) *finder {
	size := 16
	for size < 2*len(rows) {
		size *= 2
	}
	f := &finder{seed: maphash.MakeSeed(), slots: make([]slot, size)}
	for i := range rows {
		r := &rows[i]
		if !of(r) {
			continue
		}
		k, h := f.place(r.Account, r.User)
		f.slots[k] = slot{h, int32(i + 1), uint32(len(f.names)), uint32(len(r.Account)), uint32(len(r.User))}
		f.names = append(append(f.names, r.Account...), r.User...)
	}
	return f
}

// row gives the row of a user in an account, or of an account (user ""); -1 where there is none.
func (f *finder) row(account, user string) int32 {
	k, _ := f.place(account, user)
	return f.slots[k].row - 1
}

// place gives a name's slot in the table, which is empty if the name is not there, and its hash.
func (f *finder) place(account, user string) (int, uint32) {
	sum := maphash.String(f.seed, account)*31 + maphash.String(f.seed, user)
	h, mask := uint32(sum>>32), uint64(len(f.slots)-1)
	for k := sum & mask; ; k = (k + 1) & mask {
		s := f.slots[k]
		if s.row == 0 {
			return int(k), h
		}
		if s.hash == h && int(s.size) == len(account) && int(s.more) == len(user) {
			if at := f.names[s.from:][:len(account)+len(user)]; string(at[:len(account)]) == account &&
				string(at[len(account):]) == user {
				return int(k), h
			}
		}
	}
}

package token

import (
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"sync"
	"time"
)

// Public is the public keys of an identity provider, from a file that is read again when it changes.
type Public struct {
	Path string

	mu     sync.Mutex
	looked time.Time
	at     time.Time // the file's
	keys   map[string]*rsa.PublicKey
	err    error
}

const (
	lookPace     = 5 * time.Second // between two looks at the file
	maxKeyFile   = 1 << 20         // bytes
	leastModulus = 2048            // bits
)

type keySet struct {
	Keys []struct {
		Kty, Kid, Alg, Use, N, E string
	} `json:"keys"`
}

// key gives the key with an id; with "" the only one.
func (p *Public) key(id string) (*rsa.PublicKey, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.looked) > lookPace {
		p.looked = time.Now()
		if info, err := os.Stat(p.Path); err != nil {
			p.err = err // the keys that are known go on
		} else if !info.ModTime().Equal(p.at) {
			keys, err := readKeys(p.Path)
			if p.err = err; err == nil {
				p.keys, p.at = keys, info.ModTime()
			}
		}
	}
	if k := p.keys[id]; k != nil {
		return k, nil
	}
	if id == "" && len(p.keys) == 1 {
		for _, k := range p.keys {
			return k, nil
		}
	}
	if p.err != nil {
		return nil, p.err
	}
	return nil, errors.New("no such key")
}

func readKeys(path string) (_ map[string]*rsa.PublicKey, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	text, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	if err != nil {
		return nil, err
	}
	var set keySet
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	keys := map[string]*rsa.PublicKey{}
	for _, k := range set.Keys {
		if k.Kty != "RSA" || k.Use != "" && k.Use != "sig" || k.Alg != "" && k.Alg != "RS256" {
			continue
		}
		n, err1 := base64.RawURLEncoding.DecodeString(k.N)
		e, err2 := base64.RawURLEncoding.DecodeString(k.E)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("%s: key %q: %w", path, k.Kid, err)
		}
		key := &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(new(big.Int).SetBytes(e).Int64())}
		if key.N.BitLen() < leastModulus || key.E < 3 {
			return nil, fmt.Errorf("%s: key %q has %d bits, at least %d are needed", path, k.Kid, key.N.BitLen(), leastModulus)
		}
		keys[k.Kid] = key
	}
	return keys, nil
}

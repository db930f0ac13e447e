package token

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"gbatch/internal/model"
)

// Claims are what a token says.
type Claims struct {
	User  string
	At    time.Time // when it was made; zero: it does not say
	Until time.Time
	Most  model.Rights // the most that it may do
	Via   *Via         // the host that it was made through; nil: a controller, or it does not say
}

// Via is the certificate of a host that had a token made in a user's name. Once it is revoked, the token counts no
// more: the host might have made tokens for everybody.
type Via struct {
	Role   string `json:"role"`
	Name   string `json:"name"`
	Serial string `json:"serial"`
	Family string `json:"family,omitempty"`
}

// claims is the body of a token.
type claims struct {
	jwt.RegisteredClaims
	Sun    string `json:"sun,omitempty"`
	Name   string `json:"username,omitempty"`
	Rights string `json:"gbatch_rights,omitempty"`
	Via    *Via   `json:"gbatch_via,omitempty"`
}

// MaxBytes is the length of the longest token that is looked at. HTTP headers are no longer.
const MaxBytes = 16 << 10

// Make signs a token with the cluster's key.
func Make(key []byte, c *Claims) (string, error) {
	if len(key) == 0 {
		return "", errors.New("there is no key yet to sign tokens with")
	}
	body := claims{Sun: c.User, Via: c.Via, RegisteredClaims: jwt.RegisteredClaims{IssuedAt: jwt.NewNumericDate(c.At),
		ExpiresAt: jwt.NewNumericDate(c.Until)}}
	if c.Most < model.RightsAdministrator {
		body.Rights = c.Most.String()
	}
	return jwt.NewWithClaims(jwt.SigningMethodHS256, &body).SignedString(key)
}

// Checker says whether tokens count.
type Checker struct {
	Key    func() []byte    // the cluster's; nil: there is none yet
	Now    func() time.Time // the cluster's time
	Public *Public          // keys of an identity provider; nil: none
	Claim  string           // the claim of its tokens that has the user's name; "": sun or username

	// Whom the provider's tokens must be meant for, and who must have made them: it signs with the same keys for other
	// services too, which could else act here as their users. "": whatever they say.
	Audience, Issuer string

	seen seen
}

// leeway is how far the clocks of who makes tokens and of the cluster may differ.
const leeway = 2 * time.Second

// Check reads a token. The error says why it does not count, without any of its bytes.
func (k *Checker) Check(text string) (*Claims, error) {
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("a token of %d bytes; none has more than %d", len(text), MaxBytes)
	}
	key, digest := k.Key(), sha256.Sum256([]byte(text))
	if c := k.seen.get(&digest, key, k.Now()); c != nil {
		return c, nil
	}
	methods := []string{jwt.SigningMethodHS256.Alg()}
	if k.Public != nil {
		methods = append(methods, jwt.SigningMethodRS256.Alg())
	}
	parser := jwt.NewParser(jwt.WithValidMethods(methods), jwt.WithExpirationRequired(), jwt.WithTimeFunc(k.Now),
		jwt.WithLeeway(leeway), jwt.WithStrictDecoding())
	var body claims
	others := jwt.MapClaims{}
	foreign := false
	_, err := parser.ParseWithClaims(text, &body, func(t *jwt.Token) (any, error) {
		if t.Method.Alg() == jwt.SigningMethodHS256.Alg() {
			if len(key) > 0 {
				return key, nil
			}
			return nil, errors.New("this cluster has no key for tokens yet")
		}
		foreign = true
		id, _ := t.Header["kid"].(string)
		return k.Public.key(id)
	})
	if err != nil {
		return nil, why(err)
	}
	c := &Claims{User: body.Sun, Via: body.Via, Until: body.ExpiresAt.Time, Most: model.RightsAdministrator}
	if c.User == "" {
		c.User = body.Name
	}
	if foreign {
		switch {
		case k.Audience != "" && !slices.Contains(body.Audience, k.Audience):
			return nil, errors.New("the token is meant for another service (jwt_audience)")
		case k.Issuer != "" && body.Issuer != k.Issuer:
			return nil, errors.New("the token is of another issuer (jwt_issuer)")
		}
	}
	if foreign && k.Claim != "" {
		if _, _, err := parser.ParseUnverified(text, others); err != nil { // it was verified above
			return nil, why(err)
		}
		c.User, _ = others[k.Claim].(string)
	}
	if body.IssuedAt != nil {
		c.At = body.IssuedAt.Time
	}
	if body.Rights != "" {
		i := slices.Index(model.RightsNames, body.Rights)
		c.Most = model.Rights(max(0, i))
	}
	if c.User == "" {
		return nil, errors.New("the token names no user")
	}
	if !foreign { // an identity provider may take its keys back
		k.seen.put(&digest, key, c)
	}
	return c, nil
}

// why gives an error in a few words.
func why(err error) error {
	switch {
	case errors.Is(err, jwt.ErrTokenMalformed):
		return errors.New("it is no token")
	case errors.Is(err, jwt.ErrTokenSignatureInvalid):
		return errors.New("it was not signed with this cluster's key")
	case errors.Is(err, jwt.ErrTokenRequiredClaimMissing):
		return errors.New("the token does not say when it ends")
	case errors.Is(err, jwt.ErrTokenExpired):
		return errors.New("the token has expired")
	case errors.Is(err, jwt.ErrTokenNotValidYet), errors.Is(err, jwt.ErrTokenUsedBeforeIssued):
		return errors.New("the token is not valid yet")
	case errors.Is(err, jwt.ErrTokenUnverifiable):
		return errors.New("the token can't be verified: it was signed with a key that is unknown here")
	}
	return errors.New("the token is not valid")
}

package page

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"gbatch/ctld/rest"
)

// caller.go says who reads. Whoever signs in gives a token, which a cookie keeps that scripts can't read and that no
// other site can make a browser send. On the unix socket the kernel's word counts, also for a browser that reaches it
// through ssh -L; other sites' pages could make that browser ask, so the host that it names must be its own.

const (
	cookieName = "gbatch_token"
	cookieTime = 24 * time.Hour // the token's own end comes before it, or not
	wordField  = "word"
	toField    = "to" // where a reader wanted to go before signing in
	wordHeader = "X-Gbatch-Word"
)

var (
	errSignIn = errors.New("sign in")
	errHost   = errors.New("this host name is not the one of a forwarded socket: use http://localhost")
)

// signedIn finds who asks, and the word that this reader's forms have.
func (q *request) signedIn() error {
	secret := ""
	if c, err := q.r.Cookie(cookieName); err == nil && c.Value != "" {
		said, err := q.p.o.Cluster.Token(c.Value)
		if err != nil {
			q.p.o.Log.Debug("a token was refused", "from", q.r.RemoteAddr, "why", err)
			return errors.Join(errSignIn, err)
		}
		if q.who, err = q.p.o.Cluster.User(q.ctx, said.User); err != nil {
			return errors.Join(errSignIn, err)
		}
		q.who.Less, q.who.Via = said.Less, said.Via
		secret = c.Value
	} else {
		u := rest.LocalUser(q.ctx)
		if u == nil {
			return errSignIn
		}
		if !rest.OwnHost(q.r.Host) {
			return errHost
		}
		q.who = q.p.o.Cluster.Local(q.ctx, u)
		secret = sealed(string(q.p.own[:]), strconv.FormatUint(uint64(u.UID), 10))
	}
	q.word = sealed(secret, "a form of gbatch") // any controller may get the form back
	return nil
}

// sealed is a word that only who has the secret can make of a text.
func sealed(secret, text string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = mac.Write([]byte(text)) // it never fails
	return hex.EncodeToString(mac.Sum(nil))[:32]
}

// ours reports whether a form, or a script's request, has the word.
func (q *request) ours() bool {
	got := q.r.Header.Get(wordHeader)
	if got == "" {
		got = q.r.PostFormValue(wordField)
	}
	return q.word != "" && hmac.Equal([]byte(got), []byte(q.word))
}

// turnAway answers one who is not known.
func (q *request) turnAway(err error) {
	q.who = nil
	if q.r.Method == http.MethodPost {
		q.w.Header().Set("Connection", "close") // the form is not waited for
	}
	if errors.Is(err, errHost) {
		q.fail(http.StatusForbidden, "Open this page as http://localhost: another name could be another site's.")
		return
	}
	if q.r.Method == http.MethodPost || q.r.Header.Get("X-Part") != "" {
		q.fail(http.StatusUnauthorized, "Sign in again: the token has ended or was revoked.")
		return
	}
	set := url.Values{}
	if _, has := q.r.Cookie(cookieName); has == nil {
		q.cookie("", -time.Second)
		set.Set("again", "1")
	}
	to := strings.TrimPrefix(q.r.URL.RequestURI(), q.p.o.Path)
	if v, _ := viewAt(strings.TrimPrefix(q.r.URL.Path, q.p.o.Path)); v != nil && to != "/" {
		set.Set(toField, local(to))
	}
	at := "/login"
	if len(set) > 0 {
		at += "?" + set.Encode()
	}
	q.goTo(at)
}

// local gives a path, below the proxy's, of a page of these; "/" for what could lead a browser elsewhere.
func local(to string) string {
	u, err := url.Parse(to)
	if err != nil || u.Host != "" || u.Scheme != "" || !strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//") ||
		strings.ContainsFunc(to, func(r rune) bool { return r == '\\' || r < ' ' || r == 0x7f }) {
		return "/"
	}
	return to
}

// login shows the form for a token, and takes one.
func (q *request) login() {
	v := &view{path: "/login", title: "Sign in", template: "login"}
	if q.r.Method != http.MethodPost {
		set := q.r.URL.Query()
		q.show(v, http.StatusOK, map[string]any{"Again": set.Has("again"), "To": local(set.Get(toField))})
		return
	}
	text := strings.TrimSpace(q.r.PostFormValue("token"))
	text = strings.TrimSpace(strings.TrimPrefix(text, "SLURM_JWT="))
	said, err := q.p.o.Cluster.Token(text)
	if err == nil {
		_, err = q.p.o.Cluster.User(q.ctx, said.User)
	}
	if err != nil || strings.ContainsAny(text, " \t\r\n;,\"\\") {
		q.p.o.Log.Debug("a token was refused", "from", q.r.RemoteAddr, "why", err)
		q.show(v, http.StatusForbidden, map[string]any{"Refused": true, "To": local(q.r.PostFormValue(toField))})
		return
	}
	q.cookie(text, cookieTime)
	q.goTo(local(q.r.PostFormValue(toField)))
}

func (q *request) logout() {
	q.cookie("", -time.Second)
	q.goTo("/login")
}

// cookie keeps a token in the reader's browser, or takes it from there.
func (q *request) cookie(token string, life time.Duration) {
	secure := q.r.TLS != nil || strings.EqualFold(q.r.Header.Get("X-Forwarded-Proto"), "https")
	http.SetCookie(q.w, &http.Cookie{Name: cookieName, Value: token, Path: q.p.o.Path + "/",
		MaxAge: int(life / time.Second), HttpOnly: true, Secure: secure, SameSite: http.SameSiteStrictMode})
}

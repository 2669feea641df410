package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/internal/block"
	"github.com/coredns-safebrowsing/safebrowsing/internal/config"
	"github.com/coredns-safebrowsing/safebrowsing/internal/protocol"
	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// tokenLife is how long an access token of Google lasts unless its project allows more
// (Google Cloud, "Access tokens").
const tokenLife = time.Hour

// keyDiagnosis says whether there is a key or a token.
func keyDiagnosis(o *block.Block, now time.Time) diagnosis {
	switch {
	case !o.Config.Online:
		return diagnosis{"key", isWarning, text(fmt.Sprintf("there is none: %s is off, and only your own lists are in force", o.Config.Service)), keyAdvice(o)}
	case o.Settings.Token:
		return tokenDiagnosis(o.Settings.KeyFile, now)
	case o.Settings.KeyDoubt(o.Config.Secret) != "":
		return diagnosis{"key", isWarning, "present, but not of the form of Google's keys, which have 39 letters and begin with AIza", "if Google refuses it, " + keyAdvice(o)}
	case o.Config.Secret != "":
		return diagnosis{"key", isOK, "present", ""}
	case o.Settings.Google():
		return diagnosis{"key", isProblem, "there is none, and Google's server refuses requests without a key", keyAdvice(o)}
	}
	return diagnosis{"key", isOK, text("none, for a server of your own: " + o.Settings.Address()), ""}
}

// secrecy warns of files with the key that every user of the machine may read.
func (e *examination) secrecy(o *block.Block) {
	what := o.Settings.Credential()
	if file := o.Config.KeyFile; file != "" && othersMayRead(file) {
		e.tell(diagnosis{"key file", isWarning, text(fmt.Sprintf("every user of this machine may read the %s in %s", what, file)), text("chmod o= " + file)})
	}
	if o.Config.Given("api_key") && e.path != "" && othersMayRead(e.path) {
		e.tell(diagnosis{"key file", isWarning, text(fmt.Sprintf("every user of this machine may read %s, which holds the API key", e.path)),
			text("put the key into a file of its own, name it by api_key_file, and let only CoreDNS read it; or chmod o= " + e.path)})
	}
}

// othersMayRead reports whether users who are neither the owner nor in the group of a file may
// read it: they may enter all folders above it, too.
func othersMayRead(path string) bool {
	path, err := filepath.EvalSymlinks(path)
	if err != nil || runtime.GOOS == "windows" {
		return false
	}
	if path, err = filepath.Abs(path); err != nil {
		return false
	}
	for need := fs.FileMode(0o004); ; need = 0o001 {
		info, err := os.Stat(path)
		if err != nil || info.Mode()&need == 0 {
			return false
		}
		above := filepath.Dir(path)
		if above == path {
			return true
		}
		path = above
	}
}

// tokenDiagnosis says how old the access token in a file is, which has been read.
func tokenDiagnosis(file string, now time.Time) diagnosis {
	info, err := os.Stat(file)
	if err != nil {
		return diagnosis{"key", isProblem, text(err.Error()), "put a token into the file"}
	}
	age := now.Sub(info.ModTime())
	if age > tokenLife {
		return diagnosis{"key", isWarning, text(fmt.Sprintf("the token in %s was written %s ago, and tokens last an hour", file, strings.TrimSuffix(age.Round(time.Minute).String(), "0s"))), tokenAdvice(file)}
	}
	return diagnosis{"key", isOK, text("a token, in " + file), ""}
}

// keyAdvice says how to get a key.
func keyAdvice(o *block.Block) text {
	all := protocol.Dialects()
	d := all[slices.IndexFunc(all, func(d *protocol.Dialect) bool { return d.Service == o.Config.Service })]
	add := "give a key with api_key_file FILE"
	if d.Tokens {
		add = "give a key with api_key_file FILE or a token with token_file FILE"
	}
	return text(fmt.Sprintf("%s, or with $%s; enable the %s API at %s and create a key at %s/apis/credentials",
		add, config.KeyVariable, d.Service, apiPage(d), cloudConsole))
}

// tokenAdvice says what ends the refusal of a token.
func tokenAdvice(file string) text {
	return text(fmt.Sprintf("put a new token into %s, and let a job do so every hour; CoreDNS uses it within 5 seconds", file))
}

// apiPage returns the page of the console that enables the API of a service.
func apiPage(d *protocol.Dialect) string {
	return cloudConsole + "/apis/library/" + strings.TrimPrefix(d.Endpoint, "https://")
}

// adviceFor says what the operator can do about an HTTP status.
func adviceFor(code int, o *block.Block) text {
	d := o.Settings.Dialect()
	switch {
	case code == http.StatusUnauthorized && o.Settings.Token:
		return tokenAdvice(o.Settings.KeyFile)
	case code == http.StatusBadRequest, code == http.StatusUnauthorized, code == http.StatusForbidden:
		return accessAdvice(o)
	case code == http.StatusTooManyRequests:
		return text(fmt.Sprintf("the quota of the %s's project is used up: wait, or raise it in the cloud console", o.Settings.Credential()))
	case code == http.StatusNotFound:
		return text(fmt.Sprintf("there is no %s server: correct endpoint, or protocol", d.Title))
	case code >= 500:
		return "wait: the server cannot answer now, and the plugin retries by itself"
	}
	return "correct endpoint"
}

// accessAdvice says what must be right for a server of Google to accept a key or token.
func accessAdvice(o *block.Block) text {
	d := o.Settings.Dialect()
	all := []string{"that the key is right and its restrictions allow the API and this machine"}
	if o.Settings.Token {
		all = []string{"that the token is right and its account may use the API"}
	}
	all = append(all, fmt.Sprintf("that the %s API is enabled in its project (%s)", d.Service, apiPage(d)))
	if d.Paid {
		all = append(all, "that the project has a billing account")
	}
	last := len(all) - 1
	return text("make sure " + strings.Join(all[:last], ", ") + ", and " + all[last])
}

// adviceOn says how the operator can end a back-off.
func adviceOn(o *block.Block, hold updater.Hold) text {
	if hold.Failures == 0 {
		return "wait: the server's rules do not allow an earlier request"
	}
	const changed = "; CoreDNS tries a changed key within a minute after its start or after api_key_file changes"
	code := 0
	_, _ = fmt.Sscanf(hold.Cause, "status %d", &code) // 0 if the cause is no status
	switch {
	case code == http.StatusTooManyRequests, code == http.StatusUnauthorized && o.Settings.Token:
		return adviceFor(code, o)
	case code == http.StatusBadRequest, code == http.StatusNotFound:
		return text(fmt.Sprintf("correct the %s, the endpoint or the names in lists", o.Settings.Credential())) + changed
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return adviceFor(code, o) + changed
	}
	return "remove the cause; CoreDNS then asks again by itself"
}

// renewedSince reports whether there is a token that was written after a time: a refusal at
// that time was for the one before.
func renewedSince(o *block.Block, t time.Time) bool {
	info, err := os.Stat(o.Settings.KeyFile)
	return o.Settings.Token && err == nil && info.ModTime().After(t)
}

// tryKey asks a server for the names of its lists, once. The error is a *keyRefusal if the server
// answers and does not accept the key.
func tryKey(ctx context.Context, endpoint, key string, resolvers []string) error {
	if err := say.CheckKey(key); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, serverTimeout)
	defer cancel()
	var at []string
	for _, r := range resolvers {
		at = append(at, withPort(r))
	}
	client, err := protocol.NewV5(protocol.Config{Endpoint: endpoint, Key: key, Resolvers: at, UserAgent: "coredns-safebrowsing/" + say.Version})
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = client.Lists(ctx)
	if status, ok := errors.AsType[*updater.StatusError](err); ok {
		if refused := refusalOf(status); refused != nil {
			return refused
		}
	}
	if isTLS(err) { // as on a Raspberry Pi whose clock was never set
		return fmt.Errorf("%w. Set the clock, and install the system's root certificates (ca-certificates)", err)
	}
	return err
}

// withPort returns the address of a resolver with its port, 53 if it has none. Each address has one spelling.
func withPort(address string) string {
	at, err := netip.ParseAddrPort(address)
	if a, notAddress := netip.ParseAddr(address); notAddress == nil {
		at, err = netip.AddrPortFrom(a, 53), nil
	}
	if err != nil { // with the name of its certificate
		return address
	}
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()).String()
}

// keyRefusal says why a server does not accept a key, and what ends that.
type keyRefusal struct{ why, cure string }

// Error implements error.
func (r *keyRefusal) Error() string { return r.why + ". " + r.cure }

// cloudConsole is where keys are made.
const cloudConsole = "https://console.cloud.google.com"

type refusal struct{ words, why, cure string }

// refusals are the words with which Google refuses a key, in lower case, and what they mean
// (Google Cloud, "API keys", and "Error details": the reasons of google.rpc.ErrorInfo have no place in
// the text, the words have).
var refusals = []refusal{
	{"has not been used in project", "the @SERVICE API is not enabled in the key's project", "Enable it at @API, wait a minute, and try again. If it is enabled in another project, the key belongs to the wrong project: make one in that one"},
	{"it is disabled", "the @SERVICE API is not enabled in the key's project", "Enable it at @API, wait a minute, and try again"},
	{"ip address restriction", "the key is restricted to other IP addresses", "Add the public address of this network to the key's application restrictions at @KEYS"},
	{"referer", "the key is restricted to web sites", "Set the key's application restrictions to none, or to IP addresses, at @KEYS"},
	{"android client application", "the key is restricted to Android apps", "Set the key's application restrictions to none, or to IP addresses, at @KEYS"},
	{"ios client application", "the key is restricted to iOS apps", "Set the key's application restrictions to none, or to IP addresses, at @KEYS"},
	{"are blocked", "the key is restricted to other APIs", "Add the @SERVICE API to the key's API restrictions at @KEYS"},
	{"api key expired", "the key has expired", "Make a new one at @KEYS"},
	{"has been suspended", "Google has suspended the key or its project", "See the project's notices at @KEYS, or make a key in another project"},
	{"api key not valid", "Google does not know the key", "Copy it again from @KEYS: it has 39 letters and begins with AIza"},
	{"billing", "the key's project has no billing account, which its service demands", "Add one, or use the Safe Browsing API, if you may"},
}

var projectNumber = regexp.MustCompile(`project (?:number )?(\d+)`)

// refusalOf says what a status means for a key of Safe Browsing, or returns nil.
func refusalOf(status *updater.StatusError) *keyRefusal {
	keys := cloudConsole + "/apis/credentials"
	switch r := knownRefusal(status, protocol.DialectV5); {
	case r != nil:
		return r
	case status.Code == http.StatusBadRequest, status.Code == http.StatusUnauthorized, status.Code == http.StatusForbidden:
		return &keyRefusal{fmt.Sprintf("the server refuses the key: %v", status), "See the key and its restrictions at " + keys}
	case status.Code == http.StatusTooManyRequests: // it knows the key
		return &keyRefusal{"the quota of the key's project is used up", "Wait until midnight, Pacific time, or see the quota at " + apiPage(protocol.DialectV5)}
	}
	return nil
}

// knownRefusal says what the words of a server mean for the key of a service. It returns nil for
// words that are not Google's.
func knownRefusal(status *updater.StatusError, d *protocol.Dialect) *keyRefusal {
	said := strings.ToLower(status.Message)
	i := slices.IndexFunc(refusals, func(r refusal) bool { return strings.Contains(said, r.words) })
	if i < 0 {
		return nil
	}
	r, project := refusals[i], ""
	number := projectNumber.FindStringSubmatch(said)
	if number != nil { // the console opens the key's project
		r.why, project = r.why+", which is number "+number[1], "?project="+number[1]
	}
	pages := strings.NewReplacer("@SERVICE", d.Service, "@API", apiPage(d)+project, "@KEYS", cloudConsole+"/apis/credentials"+project)
	return &keyRefusal{pages.Replace(r.why), pages.Replace(r.cure)}
}

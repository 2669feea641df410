package safebrowsing

import (
	"errors"
	"net/http"
	"sync"
	"time"

	clog "github.com/coredns/coredns/plugin/pkg/log"

	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

const pluginName = "safebrowsing"

var log = clog.NewWithPlugin(pluginName)

// reporter turns the events of an engine into log lines and metrics. It is safe
// for concurrent use.
type reporter struct {
	settings settings
	ready    func() // called when nothing more is to be waited for

	mu           sync.Mutex
	searchesFail bool // guarded by mu
}

func newReporter(s settings, ready func()) *reporter { return &reporter{settings: s, ready: ready} }

// report implements what updater.Config.Report asks for.
func (r *reporter) report(e updater.Event) {
	r.measure(e)
	switch e.Kind {
	case updater.Loaded:
		log.Infof("List %s is in force with %d entries from disk, last updated %s", e.List, e.Entries, moment(e.Updated))
	case updater.LoadFailed:
		log.Errorf("Damaged or unreadable, to be fetched again: %v", e.Err)
	case updater.StartsAnew:
		log.Infof("List %s came by the other version of the protocol and starts anew: it is in force until it has been fetched in full", e.List)
	case updater.LockBusy:
		log.Warningf("Folder %s is in use by another process or by settings that are being replaced: its lists are in force here, but no updates are fetched until it is free", r.settings.db)
		r.ready()
	case updater.Fetched:
		r.fetched(e)
	case updater.ListUpdated:
		log.Infof("List %s is updated to %d entries, next due %s", e.List, e.Entries, moment(e.Due))
	case updater.ListRejected:
		log.Errorf("Update of list %s is rejected, the %d entries before stay in force; it is fetched again in full, not before %s: %v", e.List, e.Entries, moment(e.Due), e.Err)
	case updater.StoreFailed:
		log.Errorf("Goes on without the disk, at a start not before half an hour has passed (name a folder that can be written with db, or set db off): %v", e.Err)
	case updater.WokeUp:
		log.Info("Woke up from a suspend")
	case updater.FirstContact:
		r.ready()
	case updater.Searched:
		r.searched(e.Err)
	}
}

// fetched tells of a request for lists. Failures are rare lines by themselves:
// the back-off sees to that.
func (r *reporter) fetched(e updater.Event) {
	if e.Err != nil {
		log.Errorf("Lists %s are not updated, what is held stays in force, next try not before %s%s: %v", e.List, moment(e.Due), hint(e.Err), e.Err)
	}
}

// searched tells when confirmations begin to fail and when they work again, not
// of each one.
func (r *reporter) searched(err error) {
	r.mu.Lock()
	changed := r.searchesFail != (err != nil)
	r.searchesFail = err != nil
	r.mu.Unlock()
	switch {
	case changed && err != nil:
		log.Warningf("Confirmations fail, suspected names pass until they work again%s: %v", hint(err), err)
	case changed:
		log.Info("Confirmations work again")
	}
}

// hint says what the operator can do about an error that will not heal by
// itself.
func hint(err error) string {
	status, ok := errors.AsType[*updater.StatusError](err)
	if !ok {
		return ""
	}
	switch status.Code {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden:
		return " (is the API key right, and is the Safe Browsing API enabled for it?)"
	case http.StatusTooManyRequests:
		return " (the quota of the API key is used up)"
	}
	return ""
}

func (r *reporter) measure(e updater.Event) {
	switch e.Kind {
	case updater.Fetched:
		r.request("fetch", e)
	case updater.Searched:
		r.request("search", e)
	case updater.Loaded, updater.ListUpdated, updater.ListUnchanged, updater.ListRejected, updater.ListWaiting:
		listEntries.WithLabelValues(e.List).Set(float64(e.Entries))
		listLastSuccess.WithLabelValues(e.List).Set(unix(e.Updated))
		listNextDue.WithLabelValues(e.List).Set(unix(e.Due))
	}
}

func (r *reporter) request(method string, e updater.Event) {
	requestsTotal.WithLabelValues(method, outcomeOf(e.Err)).Inc()
	requestDuration.WithLabelValues(method).Observe(e.Took.Seconds())
}

// outcomeOf is the kind of an error, for a label: never its text.
func outcomeOf(err error) string {
	status, ok := errors.AsType[*updater.StatusError](err)
	switch {
	case err == nil:
		return "success"
	case ok && status.Code == http.StatusTooManyRequests:
		return "quota"
	case ok && status.Code >= 500:
		return "server_error"
	case ok:
		return "refused"
	case errors.Is(err, updater.ErrMalformed):
		return "malformed"
	}
	return "unreachable"
}

// forget takes the gauges of a list down.
func forget(list string) {
	listEntries.DeleteLabelValues(list)
	listLastSuccess.DeleteLabelValues(list)
	listNextDue.DeleteLabelValues(list)
}

func unix(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}

// moment prints a time for a log line.
func moment(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format(time.RFC3339)
}

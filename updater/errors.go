package updater

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/coredns-safebrowsing/safebrowsing/internal/say"
	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// Three questions about a status look alike. refused (403, 429) chooses the back-off of
// searches. denied (401, 403) finds the back-offs that a new token ends.
// refusesLists (400, 404) finds the requests to repeat list by list.

// Errors of an update that must not be applied. The list keeps its content.
var (
	ErrChecksum  = errors.New("checksum does not match")
	ErrMalformed = errors.New("malformed update")
)

// ErrDamaged says that a file of the store is not as it was written.
var ErrDamaged = errors.New("damaged file")

// ErrBusy says that another process or engine has locked the folder.
var ErrBusy = errors.New("the folder is in use")

// NotDueError says that the schedule does not allow to fetch any of the lists yet.
type NotDueError struct {
	Until time.Time // when the first list is due
}

// Error implements error.
func (e *NotDueError) Error() string {
	return "nothing may be fetched before " + say.Time(e.Until)
}

// HeldError says that a search was not sent, since the server must not be asked now. It is
// lookup.ErrBackoff.
type HeldError struct {
	Until time.Time // when the next search may be sent; zero: when one that is under way is answered
	why   string
}

// Error implements error.
func (e *HeldError) Error() string { return lookup.ErrBackoff.Error() + ": " + e.why }

// Unwrap makes it lookup.ErrBackoff.
func (e *HeldError) Unwrap() error { return lookup.ErrBackoff }

// held returns a HeldError for a wait that begins now. which tells waits apart; it may be "".
func held(now time.Time, wait time.Duration, which string) error {
	return &HeldError{Until: now.Add(wait), why: wait.Round(time.Second).String() + " left" + which}
}

// errUnderWay is the HeldError of a search that another one may tell to wait.
var errUnderWay error = &HeldError{why: "another search is under way, after which there may be a wait"}

// StatusError is an answer with an HTTP status other than 200.
type StatusError struct {
	Code       int
	Message    string        // the server's explanation; may be empty
	RetryAfter time.Duration // as the server sent it, without a limit; 0: none
	LacksList  bool          // a relay lacks a list of the request, and says so: nothing else is wrong
}

// Error implements error.
func (e *StatusError) Error() string {
	text := fmt.Sprintf("the server answered status %d %s", e.Code, http.StatusText(e.Code))
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}

// NoKey reports whether Google says that the API key is not one, or has expired: that is status 400, as of a bad request.
func (e *StatusError) NoKey() bool {
	return e.Code == http.StatusBadRequest && strings.HasPrefix(e.Message, "API key ")
}

// NotSentError says that a request was not sent: there was no connection, since a route, a name
// server, the name, somebody who listens, or TLS was missing. It is no answer, and so no failure
// of the server: the rules of the server speak of unsuccessful responses.
type NotSentError struct {
	Err     error // what is missing, in words
	Reached bool  // a machine took the connection, and then TLS or a proxy failed
}

// Error implements error.
func (e *NotSentError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *NotSentError) Unwrap() error { return e.Err }

// Is makes it lookup.ErrNotSent.
func (e *NotSentError) Is(target error) bool { return target == lookup.ErrNotSent }

// Obeyed returns how long the header Retry-After (RFC 9110, 10.2.3) makes a client wait. It
// is at most the longest back-off: Safe Browsing does not define this header, and any
// middlebox can send it. A search waits for 30 minutes at most, unless it was refused: one
// answer of a server that is down must not end all confirmations of a day.
func (e *StatusError) Obeyed(search bool) time.Duration {
	if search && e.Code >= http.StatusInternalServerError {
		return min(e.RetryAfter, maxSearchPause)
	}
	return min(e.RetryAfter, maxBackoff)
}

// statusOf returns the status that a server has answered with; the zero StatusError: it has not.
func statusOf(err error) StatusError {
	if status, ok := errors.AsType[*StatusError](err); ok {
		return *status
	}
	return StatusError{}
}

// retryAfter returns how long the header Retry-After makes a client wait.
func retryAfter(err error, search bool) time.Duration {
	status := statusOf(err)
	return status.Obeyed(search)
}

// refused reports whether the server refuses this client, by its key or its rate.
func refused(err error) bool { return hasStatus(err, http.StatusForbidden, http.StatusTooManyRequests) }

// denied reports whether the server denied the credentials.
func denied(err error) bool { return hasStatus(err, http.StatusUnauthorized, http.StatusForbidden) }

// refusesLists reports whether the server may not know one of the lists asked for. A
// single unknown list can fail a whole batch.
func refusesLists(err error) bool {
	status := statusOf(err)
	return hasStatus(err, http.StatusBadRequest, http.StatusNotFound) && !status.NoKey()
}

// hasStatus reports whether the server has answered with one of the statuses.
func hasStatus(err error, codes ...int) bool { return slices.Contains(codes, statusOf(err).Code) }

// maxCause limits the text of a cause, in bytes.
const maxCause = 200

// causeOf says in at most maxCause bytes why a request failed. The text is saved and
// logged: keeping the key out of err is up to the Source and the Searcher.
func causeOf(err error) string {
	text := err.Error()
	if status, ok := errors.AsType[*StatusError](err); ok {
		text = fmt.Sprintf("status %d %s", status.Code, http.StatusText(status.Code))
		if status.Message != "" {
			text += ": " + status.Message
		}
	}
	if len(text) > maxCause {
		text = text[:maxCause]
		for !utf8.ValidString(text) {
			text = text[:len(text)-1]
		}
	}
	return strings.TrimSpace(text)
}

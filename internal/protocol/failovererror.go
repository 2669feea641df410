package protocol

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
	"github.com/coredns-safebrowsing/safebrowsing/updater"
)

// failure is a try that has failed.
type failure struct {
	endpoint *endpoint
	sent     time.Time
	wait     time.Duration // the minimum wait in the part of an answer; 0: none
	err      error
}

type failures []failure

// error returns the error of a request that no endpoint has answered, and how long it is
// until the first of all endpoints may be asked. The error says what each one did. In
// errors.Is and errors.As it is the error of the endpoint that may be asked again first,
// without Retry-After: the caller must not wait longer for the sake of another endpoint.
func (f *Failover) error(m method, now time.Time, all failures) (wait time.Duration, _ error) {
	f.lock()
	defer f.mu.Unlock()
	next := f.endpoints[0].rests[m].notBefore
	for _, e := range f.endpoints {
		if at := e.rests[m].notBefore; at.Before(next) {
			next = at
		}
	}
	wait = max(0, next.Sub(now))
	if len(all) == 0 {
		return wait, fmt.Errorf("%w: each endpoint has asked to wait", lookup.ErrBackoff)
	}
	if err := all.notSent(); err != nil {
		return wait, err
	}
	// An endpoint that was not reached may be asked first, but says nothing about the others.
	sent := slices.DeleteFunc(slices.Clone(all), func(one failure) bool { return isNotSent(one.err) })
	e := &noEndpointError{text: all.text(), err: sent[0].err}
	first := sent[0].endpoint.rests[m].notBefore
	for _, one := range sent {
		if r := one.endpoint.rests[m]; r.notBefore.Before(first) {
			e.err, first = one.err, r.notBefore
		}
	}
	if status, ok := errors.AsType[*updater.StatusError](e.err); ok {
		e.err = &updater.StatusError{Code: status.Code, Message: status.Message}
	}
	return wait, e
}

// text says what each endpoint did.
func (all failures) text() string {
	var texts []string
	for _, one := range all {
		texts = append(texts, one.endpoint.url+": "+one.err.Error())
	}
	return strings.Join(texts, "; ")
}

// notSent returns an *updater.NotSentError if no endpoint was sent anything, and else nil.
func (all failures) notSent() error {
	e := &updater.NotSentError{Err: &noEndpointError{text: all.text(), err: all[0].err}}
	for _, one := range all {
		err, ok := errors.AsType[*updater.NotSentError](one.err)
		if !ok {
			return nil
		}
		e.Reached = e.Reached || err.Reached
	}
	return e
}

func isNotSent(err error) bool {
	_, ok := errors.AsType[*updater.NotSentError](err)
	return ok
}

// noEndpointError says that no endpoint has answered.
type noEndpointError struct {
	text string
	err  error
}

// Error implements error.
func (e *noEndpointError) Error() string { return e.text }

// Unwrap returns the error of the endpoint that may be asked again first, without
// Retry-After.
func (e *noEndpointError) Unwrap() error { return e.err }

// isOfRequest reports whether an error is about the request and not about the endpoint:
// all endpoints would refuse it. It is not if the endpoint may lack our key, which
// reaches the endpoints at different times, or a list or the whole service, as an
// ingress without a server behind it; nor if the endpoint asks to come later.
func isOfRequest(err error) bool {
	status, ok := errors.AsType[*updater.StatusError](err)
	if !ok {
		return false
	}
	switch status.Code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusRequestTimeout, http.StatusTooManyRequests:
		return false
	}
	return status.Code >= 400 && status.Code < 500
}

// isUnanswered reports whether an endpoint works, but has no answer about some prefixes. The next
// one may have.
func isUnanswered(err error) bool {
	_, ok := errors.AsType[*lookup.UnansweredError](err)
	return ok
}

// sooner returns of two errors that are unanswered the one whose wait ends first. a may be nil.
func sooner(a, b error) error {
	first, ok := errors.AsType[*lookup.UnansweredError](a)
	second, _ := errors.AsType[*lookup.UnansweredError](b)
	if ok && first.Until.Before(second.Until) {
		return a
	}
	return b
}

// lacksList reports whether an endpoint may lack one of the lists that it was asked for.
// If all endpoints say so, that is about the list and not about them.
func lacksList(err error) bool {
	status, ok := errors.AsType[*updater.StatusError](err)
	return ok && status.Code == http.StatusNotFound
}

package protocoltest

import (
	"net/http"
	"net/url"
	"time"

	"google.golang.org/protobuf/proto"
)

// service is one of the protocols that the server speaks: what is the same for all its
// methods. Each is in files of its own, which add it to methods.
type service struct {
	// parse understands a request whose method is known. It never fails: what cannot be
	// understood is noted in badRequest.
	parse func(q *query, values url.Values, header http.Header)
	// shows reports whether the answer to a request has what a fault changes. Of such faults
	// frame reports whether it makes the client refuse a whole list answer that arrived well,
	// and content whether it spoils single lists.
	shows          func(f *Fault, q *query) bool
	frame, content func(f *Fault) bool
	// judgeBody judges the body of a POST request.
	judgeBody func(r *referee, q *query, req *http.Request)
}

// method is one method of a service. A function that is nil has nothing to do.
type method struct {
	name     string // as Request.Method and Break name it
	path     string
	verb     string // HTTP method; "": GET
	updates  bool   // fetches the contents of lists
	searches bool   // searches full hashes
	service  *service

	// refuse returns the status of a request that names known lists and gets no proper
	// answer, 0 if it gets one.
	refuse func(s *Server, q *query) (status int, why string)
	// answer returns the message of an answer and notes in a what it tells the client.
	answer func(s *Server, q *query, f *Fault, a *reply) (proto.Message, error)
	// judge judges whether a well-formed request may be made now, and learn takes in how it
	// ended. Owners tells the list of each version ever served.
	judge func(r *referee, q *query, now time.Time, owners map[string]string)
	learn func(r *referee, x *exchange, how outcome, at time.Time)
}

// methods are all methods by their names. It is filled at the start of the program and then
// only read.
var methods = map[string]*method{}

// unknownMethod stands for the method of an unknown path.
var unknownMethod = &method{service: v5}

// add makes methods known.
func (s *service) add(all ...method) {
	for _, m := range all {
		m.service = s
		methods[m.name] = &m
	}
}

// to returns the method that a request asks for.
func (q *query) to() *method {
	if m := methods[q.method]; m != nil {
		return m
	}
	return unknownMethod
}

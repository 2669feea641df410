package sharing

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/coredns-safebrowsing/safebrowsing/lookup"
)

// A value in Redis is the answer about one prefix, in big-endian order:
//
//	1 byte   format
//	8 bytes  when the answer was received, in Unix milliseconds by the clock of Redis
//	8 bytes  the same by the clock of the relay that wrote it
//	8 bytes  TTL in milliseconds
//	n times  32 bytes full hash, 1 byte threats, 1 byte marks, 8 bytes TTL in milliseconds
//	8 bytes  checksum: SHA-256 of the prefix and of all above, cut
//
// A newer format begins with a greater number and ends with the same checksum.
//
// The script that writes compares bytes 2 to 9 of two values.
const (
	answerFormat = 1
	headSize     = 1 + 3*8
	threatSize   = 32 + 1 + 1 + 8
	sumSize      = 8
)

// maxThreats is the most full hashes in a value. The cache of a relay keeps no more.
const maxThreats = 256

// maxSize is the most bytes of a value, with room for newer formats.
const maxSize = 2 * (headSize + maxThreats*threatSize + sumSize)

// frameOnly is the mark of lookup.ThreatHash.FrameOnly.
const frameOnly = 1

// answer is the content of a value.
type answer struct {
	byRedis, byWriter time.Time // when it was received
	ttl               time.Duration
	threats           []lookup.ThreatHash
}

// sumOf returns the checksum of a value about a prefix.
func sumOf(p lookup.Prefix, value []byte) []byte {
	h := sha256.New()
	h.Write([]byte{byte(len(p))})
	h.Write([]byte(p))
	h.Write(value)
	return h.Sum(nil)[:sumSize]
}

// encode returns the value of an answer about a prefix.
func (a answer) encode(p lookup.Prefix) []byte {
	b := make([]byte, 0, headSize+len(a.threats)*threatSize+sumSize)
	b = append(b, answerFormat)
	b = binary.BigEndian.AppendUint64(b, uint64(a.byRedis.UnixMilli()))
	b = binary.BigEndian.AppendUint64(b, uint64(a.byWriter.UnixMilli()))
	b = binary.BigEndian.AppendUint64(b, uint64(a.ttl.Milliseconds()))
	for _, t := range a.threats {
		var marks byte
		if t.FrameOnly {
			marks |= frameOnly
		}
		b = append(b, t.Hash[:]...)
		b = append(b, byte(t.Threats), marks)
		b = binary.BigEndian.AppendUint64(b, uint64(t.TTL.Milliseconds()))
	}
	return append(b, sumOf(p, b)...)
}

// decode reads a value about a prefix. A value that is not ok is damaged, unless it has
// a newer format.
func decode(p lookup.Prefix, value []byte) (a answer, ok, newer bool) {
	body := len(value) - sumSize
	if body < 1 || string(sumOf(p, value[:body])) != string(value[body:]) {
		return answer{}, false, false
	}
	if value[0] != answerFormat || body < headSize || (body-headSize)%threatSize != 0 || (body-headSize)/threatSize > maxThreats {
		return answer{}, false, value[0] > answerFormat
	}
	number := func(at int) int64 { return int64(binary.BigEndian.Uint64(value[at:])) }
	ttl := func(at int) time.Duration {
		return time.Duration(min(max(number(at), 0), maxLife.Milliseconds())) * time.Millisecond
	}
	a = answer{byRedis: time.UnixMilli(number(1)), byWriter: time.UnixMilli(number(9)), ttl: ttl(17)}
	for at := headSize; at < body; at += threatSize {
		a.threats = append(a.threats, lookup.ThreatHash{
			Hash: lookup.FullHash(value[at : at+32]), Threats: lookup.Threats(value[at+32]), FrameOnly: value[at+33]&frameOnly != 0,
			TTL: ttl(at + 34),
		})
	}
	return a, true, false
}

// maxLife is the longest life of any answer.
const maxLife = 24 * time.Hour

// maxAge is the longest life of an answer with a threat. A warning must rest on data of
// the last 30 minutes (Safe Browsing terms), and lookup keeps 10 seconds of them for the
// way to the client.
const maxAge = 30*time.Minute - 10*time.Second

// life returns how long every part of the answer may be used.
func (a answer) life() time.Duration {
	life := min(a.ttl, maxLife)
	for _, t := range a.threats {
		life = min(life, t.TTL, maxAge)
	}
	return life
}

// age returns how old the answer is by both clocks, the one of Redis and the one of this
// machine: the greater age counts, and none is negative. So one clock that is wrong, by
// any amount, never makes an answer younger. If by both it has yet to be received, both were set back, as
// on one machine, and nobody knows its age: it is not used.
func (a answer) age(redis, now time.Time) time.Duration {
	age := max(redis.Sub(a.byRedis), now.Sub(a.byWriter))
	if age < -time.Second {
		return maxLife
	}
	return max(age, 0)
}

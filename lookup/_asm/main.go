// Command _asm writes the assembly of lookup/sum_amd64.go.
package main

import (
	"fmt"
	"strings"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func main() {
	ConstraintExpr("gc,!purego")
	constants := newTables()
	sum("sumOne", 1, constants)
	sum("sumTwo", 2, constants)
	scan()
	Generate()
}

// tables are the constants in memory, each aligned to 16 bytes as operands of
// SSE instructions must be.
type tables struct {
	k       Mem // of the rounds
	initial Mem // the state that every sum begins with: words FEBA, then HGDC
	swap    Mem // shuffle that turns big-endian words into little-endian ones
	reverse Mem // shuffle that reverses 16 bytes
	padding Mem // 64 bytes of ones and 64 zeros, then 64 zeros, a slash, 0x80 and 62 zeros
}

func newTables() tables {
	t := tables{k: GLOBL("sumRounds", RODATA|NOPTR)}
	for i, k := range rounds {
		DATA(4*i, U32(k))
	}
	t.initial = GLOBL("sumInitial", RODATA|NOPTR)
	for i, h := range []int{5, 4, 1, 0, 7, 6, 3, 2} {
		DATA(4*i, U32(initial[h]))
	}
	t.swap = GLOBL("sumSwap", RODATA|NOPTR)
	DATA(0, U64(0x0405060700010203))
	DATA(8, U64(0x0c0d0e0f08090a0b))
	t.reverse = GLOBL("sumReverse", RODATA|NOPTR)
	DATA(0, U64(0x08090a0b0c0d0e0f))
	DATA(8, U64(0x0001020304050607))
	t.padding = GLOBL("sumPadding", RODATA|NOPTR)
	for i := range 32 {
		word := uint64(0)
		switch {
		case i < 8:
			word = 1<<64 - 1
		case i == 24:
			word = '/' | 0x80<<8
		}
		DATA(8*i, U64(word))
	}
	return t
}

// lane is one of the messages that are hashed side by side.
type lane struct {
	suffix near
	abef   reg.VecVirtual    // the state as the instructions want it, A and
	cdgh   reg.VecVirtual    // C being the highest words
	w      [4]reg.VecVirtual // the sixteen latest words of the schedule
}

// sum writes a function that hashes n messages of one block each. Each round waits
// for the one before it, but the SHA unit can begin one before another has ended:
// two messages keep it busy, and the registers are no more than enough for two.
func sum(name string, n int, t tables) {
	signature := "func("
	for i := range n {
		signature += fmt.Sprintf("dst%d *[32]byte, ", i)
	}
	for i := range n {
		signature += fmt.Sprintf("suffix%d string, ", i)
	}
	TEXT(name, NOSPLIT, strings.TrimSuffix(signature, ", ")+")")
	Pragma("noescape")
	Doc(name+" writes to each dst the SHA-256 of a suffix and a slash. A suffix has 1 to 54",
		"bytes.")
	swap := XMM()
	MOVOU(t.swap, swap)
	lanes := make([]lane, n)
	for i := range lanes {
		lanes[i].suffix = find(fmt.Sprintf("suffix%d", i))
	}
	for i := range lanes {
		lanes[i].begin(swap, t)
	}
	for group := range 16 {
		for i := range lanes {
			lanes[i].fourRounds(group, t)
		}
	}
	reverse := swap
	MOVOU(t.reverse, reverse)
	for i := range lanes {
		lanes[i].finish(i, reverse, t)
	}
	RET()
	for i := range lanes {
		lanes[i].suffix.copyText()
	}
}

// pageSize is the smallest unit of memory that may be readable while the next one
// is not.
const pageSize = 4096

// near is a string from which the assembly reads 64 bytes, with bytes behind it, which it
// leaves out. If these may be in another page, it reads a copy.
type near struct {
	param      string
	text, size reg.GPVirtual
	copied     Mem
}

// find finds the string of a parameter.
func find(param string) near {
	s := near{
		param:  param,
		text:   Load(Param(param).Base(), GP64()).(reg.GPVirtual),
		size:   Load(Param(param).Len(), GP64()).(reg.GPVirtual),
		copied: AllocLocal(64),
	}
	inPage := GP32()
	MOVL(s.text.As32(), inPage)
	ANDL(U32(pageSize-1), inPage)
	CMPL(inPage, U32(pageSize-64))
	JHI(LabelRef("copy_" + param))
	Label("found_" + param)
	return s
}

// copyText writes the way of a string at the end of a page. It belongs behind the end
// of the function.
func (s near) copyText() {
	Label("copy_" + s.param)
	from, n, to, b := GP64(), GP64(), GP64(), GP8()
	MOVQ(s.text, from)
	MOVQ(s.size, n)
	LEAQ(s.copied, s.text)
	MOVQ(s.text, to)
	Label("byte_" + s.param)
	MOVB(Mem{Base: from}, b)
	MOVB(b, Mem{Base: to})
	INCQ(from)
	INCQ(to)
	DECQ(n)
	JNE(LabelRef("byte_" + s.param))
	JMP(LabelRef("found_" + s.param))
}

// begin loads the block of a message and the initial state.
func (l *lane) begin(swap reg.Register, t tables) {
	l.abef, l.cdgh = XMM(), XMM()
	l.w = [4]reg.VecVirtual{XMM(), XMM(), XMM(), XMM()}
	padding := GP64()
	LEAQ(t.padding.Offset(64), padding)
	SUBQ(l.suffix.size, padding)
	for j, w := range l.w {
		part := reg.X0
		MOVOU(Mem{Base: l.suffix.text, Disp: 16 * j}, w)
		MOVOU(Mem{Base: padding, Disp: 16 * j}, part)
		PAND(part, w)
		MOVOU(Mem{Base: padding, Disp: 128 + 16*j}, part)
		POR(part, w)
		PSHUFB(swap, w)
	}
	bits := GP64()
	LEAQ(Mem{Base: l.suffix.size, Disp: 1}, bits)
	SHLL(Imm(3), bits.As32())
	PINSRD(Imm(3), bits.As32(), l.w[3])
	MOVOU(t.initial, l.abef)
	MOVOU(t.initial.Offset(16), l.cdgh)
}

// fourRounds does rounds 4*group to 4*group+3. After the first two of them the
// old ABEF are the new CDGH and after the other two they are back in place.
func (l *lane) fourRounds(group int, t tables) {
	w := l.w[group%4]
	if group >= 4 {
		l.schedule(group)
	}
	wk := reg.X0 // the instruction takes no other
	MOVO(w, wk)
	PADDD(t.k.Offset(16*group), wk)
	SHA256RNDS2(wk, l.abef, l.cdgh)
	PSHUFD(Imm(0x0e), wk, wk)
	SHA256RNDS2(wk, l.cdgh, l.abef)
}

// schedule replaces the four oldest words by the four next ones.
func (l *lane) schedule(group int) {
	w := func(i int) reg.VecVirtual { return l.w[(group+i)%4] }
	sevenAgo := XMM() // words t-7
	SHA256MSG1(w(1), w(0))
	MOVO(w(3), sevenAgo)
	PALIGNR(Imm(4), w(2), sevenAgo)
	PADDD(sevenAgo, w(0))
	SHA256MSG2(w(3), w(0))
}

// finish adds the initial state and stores the sum.
func (l *lane) finish(i int, reverse reg.Register, t tables) {
	PADDD(t.initial, l.abef)
	PADDD(t.initial.Offset(16), l.cdgh)
	PSHUFB(reverse, l.abef)
	PSHUFB(reverse, l.cdgh)
	low := l.w[0]
	MOVO(l.abef, low)
	PUNPCKLQDQ(l.cdgh, low)
	PUNPCKHQDQ(l.cdgh, l.abef)
	dst := Load(Param(fmt.Sprintf("dst%d", i)), GP64())
	MOVOU(low, Mem{Base: dst})
	MOVOU(l.abef, Mem{Base: dst, Disp: 16})
}

// initial is the state before the first block (FIPS 180-4, section 5.3.3).
var initial = [8]uint32{
	0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
}

// rounds are the constants of the rounds (FIPS 180-4, section 4.2.2).
var rounds = [64]uint32{
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
	0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
	0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
	0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
	0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
}

// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"debug/elf"
	"encoding/binary"
)

// arm64 encodes for AArch64: arguments in x0 to x3, the number in x8, the result in x0.
type arm64 struct{ b []byte }

var arm64Numbers = map[string]int{
	"rt_sigaction": 134, "rt_sigprocmask": 135, "rt_sigtimedwait": 137, "exit_group": 94,
}

const numberRegister = 8

func (e *arm64) machine() uint16 { return uint16(elf.EM_AARCH64) }
func (e *arm64) code() []byte    { return e.b }

func (e *arm64) word(w uint32) { e.b = binary.LittleEndian.AppendUint32(e.b, w) }

// constant is "movz xN, #imm16".
func (e *arm64) constant(n, value int) {
	e.word(0xd2800000 | uint32(value&0xffff)<<5 | uint32(n))
}

// pointer is "adr xN, distance": the two low bits of the distance are in bits 29 and 30, the others start at bit 5.
func (e *arm64) pointer(n, offset int) {
	distance := uint32(int32(offset - len(e.b)))
	e.word(0x10000000 | (distance&3)<<29 | (distance>>2&0x7ffff)<<5 | uint32(n))
}

func (e *arm64) syscall(name string) {
	e.constant(numberRegister, arm64Numbers[name])
	e.word(0xd4000001) // svc #0
}

// branchIfNegative is "tbnz x0, #63, distance": the sign bit decides.
func (e *arm64) branchIfNegative(offset int) {
	words := uint32(int32(offset-len(e.b)) >> 2)
	e.word(0xb7f80000 | (words&0x3fff)<<5)
}

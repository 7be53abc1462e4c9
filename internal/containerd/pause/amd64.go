// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package pause

import (
	"debug/elf"
	"encoding/binary"
)

// amd64 encodes for x86-64: arguments in rdi, rsi, rdx, r10, the number and the
// result in eax.
type amd64 struct{ b []byte }

var amd64Numbers = map[string]uint32{
	"rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigtimedwait": 128, "exit_group": 231,
}

// movOpcode is "mov r32, imm32" for each argument register; it clears the upper half.
var movOpcode = [][]byte{{0xbf}, {0xbe}, {0xba}, {0x41, 0xba}}

// leaOpcode is "lea r64, [rip+disp32]" for each argument register.
var leaOpcode = [][]byte{{0x48, 0x8d, 0x3d}, {0x48, 0x8d, 0x35}, {0x48, 0x8d, 0x15}, {0x4c, 0x8d, 0x15}}

func (e *amd64) machine() uint16 { return uint16(elf.EM_X86_64) }
func (e *amd64) code() []byte    { return e.b }

func (e *amd64) constant(n, value int) {
	e.b = append(e.b, movOpcode[n]...)
	e.b = binary.LittleEndian.AppendUint32(e.b, uint32(value))
}

func (e *amd64) pointer(n, offset int) {
	e.b = append(e.b, leaOpcode[n]...)
	e.relative(offset)
}

func (e *amd64) syscall(name string) {
	e.b = append(e.b, 0xb8) // mov eax, imm32
	e.b = binary.LittleEndian.AppendUint32(e.b, amd64Numbers[name])
	e.b = append(e.b, 0x0f, 0x05) // syscall
}

func (e *amd64) branchIfNegative(offset int) {
	e.b = append(e.b, 0x85, 0xc0) // test eax, eax
	e.b = append(e.b, 0x0f, 0x88) // js rel32
	e.relative(offset)
}

// relative appends the distance from the end of the instruction, which is the end of these four bytes.
func (e *amd64) relative(offset int) {
	e.b = binary.LittleEndian.AppendUint32(e.b, uint32(int32(offset-len(e.b)-4)))
}

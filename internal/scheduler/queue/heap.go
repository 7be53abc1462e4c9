// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import "container/heap"

// items is a heap of items. Each item stores its position, so that it can be removed.
type items struct {
	list []*Item
	less func(a, b *Item) bool
}

func (h *items) Len() int           { return len(h.list) }
func (h *items) Less(i, j int) bool { return h.less(h.list[i], h.list[j]) }
func (h *items) Swap(i, j int) {
	h.list[i], h.list[j] = h.list[j], h.list[i]
	h.list[i].index, h.list[j].index = i, j
}

func (h *items) Push(x any) {
	item := x.(*Item)
	item.index = len(h.list)
	h.list = append(h.list, item)
}

func (h *items) Pop() any {
	last := len(h.list) - 1
	item := h.list[last]
	h.list[last] = nil
	h.list = h.list[:last]
	return item
}

func (h *items) first() *Item {
	if len(h.list) == 0 {
		return nil
	}
	return h.list[0]
}

func (h *items) add(item *Item) {
	item.in = h
	heap.Push(h, item)
}

// leave removes an item from its heap, if it is in one.
func (item *Item) leave() {
	if item.in != nil {
		heap.Remove(item.in, item.index)
		item.in = nil
	}
}

// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package nft

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/knftables"
)

// Table is a table of the kernel, of the family inet. It is not safe for concurrent use.
type Table struct {
	name    string
	nft     knftables.Interface
	content *Content
	// known reports whether the kernel has the content as last written.
	known bool
	// refused has the fragments that the kernel refused. They are tried again when they change.
	refused map[string]Fragment
	// transactions counts those that the kernel accepted.
	transactions uint32
}

// Refused is a fragment that the kernel does not accept.
type Refused struct {
	Source string
	Err    error
}

// Open returns a table with empty content. The table that the kernel has stays as it is until the first Write. It
// fails if there is no nft, if it is too old, or without the right to change rules.
func Open(name string) (*Table, error) {
	nft, err := knftables.New(knftables.InetFamily, name, knftables.NoObjectCommentEmulation)
	if err != nil {
		return nil, err
	}
	return &Table{name: name, nft: nft, content: NewContent(), refused: map[string]Fragment{}}, nil
}

// Put replaces the fragment of a source. An empty fragment removes it.
func (t *Table) Put(source string, f Fragment) {
	delete(t.refused, source)
	t.content.Put(source, f)
}

// Write changes the kernel's table into the content, in one transaction. If the kernel refuses that, Write writes the
// largest part of the content that the kernel accepts, and returns the sources that it left out. Fragments of
// the source "" are needed by all others.
func (t *Table) Write(ctx context.Context) ([]Refused, error) {
	if t.known && !t.content.Changed() {
		return nil, nil
	}
	if t.known {
		tx := t.nft.NewTransaction()
		t.content.update(tx)
		if tx.NumOperations() == 0 || t.run(ctx, tx) == nil {
			t.content.written()
			return nil, nil
		}
		t.known = false
	}
	err := t.replace(ctx)
	if err == nil || ctx.Err() != nil {
		return nil, err
	}
	refused, isolated := t.isolate(ctx)
	if len(refused) == 0 {
		return nil, errors.Join(err, isolated)
	}
	for _, r := range refused {
		t.refused[r.Source] = t.content.sources[r.Source]
		t.content.Remove(r.Source)
	}
	return refused, t.replace(ctx)
}

// Check asks the kernel whether it would accept the content.
func (t *Table) Check(ctx context.Context) error { return t.check(ctx, t.content) }

// replace writes the whole content, whatever the kernel's table has. The table stays, for the elements that rules added.
// If the kernel refuses that, one transaction deletes the table and creates it: the kernel does not change the
// definition of a set or of a base chain, which may be that of another version of Kindred.
func (t *Table) replace(ctx context.Context) error {
	have, err := t.present(ctx)
	if err != nil {
		return err
	}
	tx := t.nft.NewTransaction()
	t.content.replace(tx, have)
	if err = t.run(ctx, tx); err != nil && ctx.Err() == nil {
		err = t.run(ctx, t.recreation(t.content))
	}
	if err != nil {
		return fmt.Errorf("writing the nftables table: %w", err)
	}
	t.content.written()
	t.known = true
	return nil
}

// run makes a transaction, and counts it if the kernel accepts it.
func (t *Table) run(ctx context.Context, tx *knftables.Transaction) error {
	err := t.nft.Run(ctx, tx)
	if err == nil {
		t.transactions++
	}
	return err
}

// Transactions returns the number of transactions that Write has made.
func (t *Table) Transactions() uint32 { return t.transactions }

// recreation returns a transaction that replaces the table by a new one.
func (t *Table) recreation(c *Content) *knftables.Transaction {
	tx := t.nft.NewTransaction()
	tx.Add(&knftables.Table{}) // one that does not exist cannot be deleted
	tx.Delete(&knftables.Table{})
	c.replace(tx, present{})
	return tx
}

// present returns the names of what the kernel's table has.
func (t *Table) present(ctx context.Context) (present, error) {
	names, err := t.nft.ListAll(ctx)
	if err != nil && !knftables.IsNotFound(err) {
		return present{}, fmt.Errorf("listing the nftables table: %w", err)
	}
	return present{chains: names["chain"], sets: names["set"], maps: names["map"]}, nil
}

// isolate returns the sources whose fragments the kernel refuses. It checks halves of the sources, together with
// the source "", until one remains.
func (t *Table) isolate(ctx context.Context) ([]Refused, error) {
	var sources []string
	for _, s := range t.content.Sources() {
		if s != "" {
			sources = append(sources, s)
		}
	}
	if err := t.checkSources(ctx, nil); err != nil {
		return nil, err // what all need is refused
	}
	return t.bisect(ctx, sources)
}

func (t *Table) bisect(ctx context.Context, sources []string) ([]Refused, error) {
	if len(sources) == 0 {
		return nil, nil
	}
	err := t.checkSources(ctx, sources)
	if err == nil {
		return nil, nil
	}
	if ctx.Err() != nil {
		return nil, err
	}
	if len(sources) == 1 {
		return []Refused{{sources[0], err}}, nil
	}
	half := len(sources) / 2
	first, err1 := t.bisect(ctx, sources[:half])
	second, err2 := t.bisect(ctx, sources[half:])
	return append(first, second...), errors.Join(err1, err2)
}

// checkSources asks the kernel whether it would accept the fragments of some sources.
func (t *Table) checkSources(ctx context.Context, sources []string) error {
	c := NewContent()
	c.Put("", t.content.sources[""])
	for _, s := range sources {
		c.Put(s, t.content.sources[s])
	}
	return t.check(ctx, c)
}

// check asks the kernel whether it would accept the content in a new table, so that what the present one has is not
// blamed on a fragment.
func (t *Table) check(ctx context.Context, c *Content) error {
	return t.nft.Check(ctx, t.recreation(c))
}

// Forget makes the next Write replace the whole table, because another program has changed it.
func (t *Table) Forget() { t.known = false }

// Delete removes the table with everything in it.
func (t *Table) Delete(ctx context.Context) error {
	tx := t.nft.NewTransaction()
	tx.Add(&knftables.Table{})
	tx.Delete(&knftables.Table{})
	return t.nft.Run(ctx, tx)
}

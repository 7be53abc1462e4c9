// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package revisions

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ownership "github.com/kindred-project/kindred/apis/ownership/v1alpha1"
	"github.com/kindred-project/kindred/internal/controllers/framework/owned"
)

// ErrNameTaken says that something else has the name that follows from a state's hash.
// The owner's collisionCount, raised by one, gives the state another name.
var ErrNameTaken = errors.New("the name of the new ControllerRevision is taken")

// Keeper keeps the revisions of the objects of one kind.
type Keeper struct {
	// Kind is what controller references name.
	Kind schema.GroupVersionKind
	// Label is the label of revisions that holds their hash.
	Label string
	// Client writes; Live reads past the cache.
	Client client.Client
	Live   client.Reader
	// Ledger remembers what was written.
	Ledger *owned.Ledger[*appsv1.ControllerRevision]
}

// List returns the owner's revisions after adoption and release, the lowest number
// first.
func (k Keeper) List(ctx context.Context, owner client.Object, selector labels.Selector) ([]*appsv1.ControllerRevision, error) {
	mine, err := owned.Children[*appsv1.ControllerRevision]{
		Kind:   k.Kind,
		Client: k.Client,
		Live:   k.Live,
		Ledger: k.Ledger,
		List:   list,
	}.Of(ctx, owner, selector)
	slices.SortFunc(mine, byNumber)
	return mine, err
}

func list(ctx context.Context, from client.Reader, opts ...client.ListOption) ([]*appsv1.ControllerRevision, error) {
	found := &appsv1.ControllerRevisionList{}
	if err := from.List(ctx, found, opts...); err != nil {
		return nil, err
	}
	return owned.Pointers(found.Items), nil
}

// byNumber makes the order total, so that of two with one number the same is chosen
// each time.
func byNumber(a, b *appsv1.ControllerRevision) int {
	return cmp.Or(cmp.Compare(a.Revision, b.Revision), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// Split tells the revisions that hold the given state from all others, and leaves both
// in order.
func Split(all []*appsv1.ControllerRevision, data []byte) (same, others []*appsv1.ControllerRevision) {
	for _, revision := range all {
		if holds(revision, data) {
			same = append(same, revision)
		} else {
			others = append(others, revision)
		}
	}
	return same, others
}

func holds(revision *appsv1.ControllerRevision, data []byte) bool {
	return bytes.Equal(revision.Data.Raw, data)
}

// New returns a revision of the owner that holds data. Its name follows from the data,
// so that to create it twice fails; its labels are those given and its hash. It carries
// the owner's annotations, kubernetes.io/change-cause above all, for the history, but for a
// hold.
func (k Keeper) New(owner client.Object, templateLabels map[string]string, data []byte, collisions *int32) *appsv1.ControllerRevision {
	hash := hashOf(data, collisions)
	marked := map[string]string{}
	maps.Copy(marked, templateLabels)
	marked[k.Label] = hash
	annotations := maps.Clone(owner.GetAnnotations())
	delete(annotations, ownership.HoldAnnotation)
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       owner.GetNamespace(),
			Name:            nameOf(owner.GetName(), hash),
			Labels:          marked,
			Annotations:     annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, k.Kind)},
		},
		Data: runtime.RawExtension{Raw: data},
	}
}

// hashOf names a state. The collision count makes the same state give another hash,
// after a name was found taken.
func hashOf(data []byte, collisions *int32) string {
	h := fnv.New32()
	h.Write(data)
	if collisions != nil {
		h.Write([]byte(strconv.Itoa(int(*collisions))))
	}
	return rand.SafeEncodeString(fmt.Sprint(h.Sum32()))
}

func nameOf(owner, hash string) string {
	room := validation.DNS1123SubdomainMaxLength - len("-") - len(hash)
	return owner[:min(len(owner), room)] + "-" + hash
}

// Hash returns what the pods of a revision are labelled with. A revision that lost its
// label, or never had one, is known by its name.
func (k Keeper) Hash(revision *appsv1.ControllerRevision) string {
	return cmp.Or(revision.Labels[k.Label], revision.Name)
}

// Current makes sure that the state which wanted holds has a revision, and that it is
// the newest. same and others are what Split made of all the owner's revisions. Of
// several that hold the state, the one with the highest number is it.
func (k Keeper) Current(ctx context.Context, owner client.Object, wanted *appsv1.ControllerRevision, same, others []*appsv1.ControllerRevision) (*appsv1.ControllerRevision, error) {
	next := int64(1)
	if n := len(others); n > 0 {
		next = others[n-1].Revision + 1
	}
	if len(same) == 0 {
		wanted.Revision = next
		return k.create(ctx, owner, wanted)
	}
	// If others were trimmed, the number may be higher than it need be.
	current := same[len(same)-1]
	if current.Revision >= next {
		return current, nil
	}
	renumbered := current.DeepCopy()
	renumbered.Revision = next
	if err := k.Client.Update(ctx, renumbered); err != nil {
		return nil, err
	}
	k.Ledger.Wrote(owner, renumbered)
	return renumbered, nil
}

func (k Keeper) create(ctx context.Context, owner client.Object, wanted *appsv1.ControllerRevision) (*appsv1.ControllerRevision, error) {
	err := k.Client.Create(ctx, wanted)
	if apierrors.IsAlreadyExists(err) {
		return k.take(ctx, owner, wanted)
	}
	if err != nil {
		return nil, err
	}
	k.Ledger.Wrote(owner, wanted)
	return wanted, nil
}

// take deals with a revision that has the wanted one's name: it is the wanted one, made
// before a restart and not in the cache yet, or something else.
func (k Keeper) take(ctx context.Context, owner client.Object, wanted *appsv1.ControllerRevision) (*appsv1.ControllerRevision, error) {
	found := &appsv1.ControllerRevision{}
	if err := k.Live.Get(ctx, client.ObjectKeyFromObject(wanted), found); err != nil {
		return nil, err
	}
	if !metav1.IsControlledBy(found, owner) || !holds(found, wanted.Data.Raw) {
		return nil, fmt.Errorf("%w: %s/%s", ErrNameTaken, found.Namespace, found.Name)
	}
	k.Ledger.Wrote(owner, found)
	return found, nil
}

// Trim deletes up to surplus of the revisions, the lowest numbers first, but none that
// is in use.
func (k Keeper) Trim(ctx context.Context, owner client.Object, revisions []*appsv1.ControllerRevision, surplus int, inUse func(*appsv1.ControllerRevision) bool) error {
	for _, revision := range revisions {
		if surplus <= 0 {
			return nil
		}
		if inUse(revision) {
			continue
		}
		if err := k.Delete(ctx, owner, revision); err != nil {
			return err
		}
		surplus--
	}
	return nil
}

// Delete deletes this very revision, not a namesake. One that is already gone is no
// error.
func (k Keeper) Delete(ctx context.Context, owner client.Object, revision *appsv1.ControllerRevision) error {
	err := k.Client.Delete(ctx, revision.DeepCopy(), client.Preconditions{UID: &revision.UID})
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	k.Ledger.Deleted(owner, revision)
	return nil
}

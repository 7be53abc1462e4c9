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

// ErrNameTaken is returned if another object has the name derived from a state's hash. A
// higher collisionCount of the owner gives the state another name.
var ErrNameTaken = errors.New("the name of the new ControllerRevision is taken")

// Keeper keeps the revisions of the objects of one kind.
type Keeper struct {
	// Kind is the owner's kind, as controller references name it.
	Kind schema.GroupVersionKind
	// Label is the key of the label with a revision's hash.
	Label string
	// Client writes; Live reads from the API.
	Client client.Client
	Live   client.Reader
	// Ledger records the writes.
	Ledger *owned.Ledger[*appsv1.ControllerRevision]
}

// List returns the owner's revisions after adoption and release, ordered by number.
func (k Keeper) List(ctx context.Context, owner client.Object, selector labels.Selector) ([]*appsv1.ControllerRevision, error) {
	claimed, err := owned.Children[*appsv1.ControllerRevision]{
		Kind:   k.Kind,
		Client: k.Client,
		Live:   k.Live,
		Ledger: k.Ledger,
		List:   list,
	}.Find(ctx, owner, selector)
	slices.SortFunc(claimed, byNumber)
	return claimed, err
}

func list(ctx context.Context, from client.Reader, opts ...client.ListOption) ([]*appsv1.ControllerRevision, error) {
	found := &appsv1.ControllerRevisionList{}
	if err := from.List(ctx, found, opts...); err != nil {
		return nil, err
	}
	return owned.Pointers(found.Items), nil
}

// byNumber is a total order, so that revisions of equal number are always in the same
// order.
func byNumber(a, b *appsv1.ControllerRevision) int {
	return cmp.Or(cmp.Compare(a.Revision, b.Revision), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// Split separates the revisions that hold the given state from the others. Both keep their
// order.
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

// New returns a revision of the owner that holds data. Its name is derived from the data,
// so that creating it twice fails. It has the given labels and its hash, and the owner's
// annotations except for a hold (kubectl rollout history shows kubernetes.io/change-cause).
func (k Keeper) New(owner client.Object, templateLabels map[string]string, data []byte, collisions *int32) *appsv1.ControllerRevision {
	hash := hashOf(data, collisions)
	labels := map[string]string{}
	maps.Copy(labels, templateLabels)
	labels[k.Label] = hash
	annotations := maps.Clone(owner.GetAnnotations())
	delete(annotations, ownership.HoldAnnotation)
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       owner.GetNamespace(),
			Name:            nameOf(owner.GetName(), hash),
			Labels:          labels,
			Annotations:     annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, k.Kind)},
		},
		Data: runtime.RawExtension{Raw: data},
	}
}

// hashOf returns the hash of a state. The owner's collision count is part of the hash, so that
// incrementing it after a name collision gives another name.
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

// Hash returns the hash with which the pods of a revision are labelled. For a revision without
// the label, it is the revision's name.
func (k Keeper) Hash(revision *appsv1.ControllerRevision) string {
	return cmp.Or(revision.Labels[k.Label], revision.Name)
}

// Current makes the revision with the state of wanted the newest one, and creates it if it is
// missing. same and others are the result of Split. If several revisions hold the
// state, the one with the highest number is used.
func (k Keeper) Current(ctx context.Context, owner client.Object, wanted *appsv1.ControllerRevision, same, others []*appsv1.ControllerRevision) (*appsv1.ControllerRevision, error) {
	next := int64(1)
	if n := len(others); n > 0 {
		next = others[n-1].Revision + 1
	}
	if len(same) == 0 {
		wanted.Revision = next
		return k.create(ctx, owner, wanted)
	}
	// If newer revisions were trimmed, the number may be higher than next.
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
		return k.resolveCollision(ctx, owner, wanted)
	}
	if err != nil {
		return nil, err
	}
	k.Ledger.Wrote(owner, wanted)
	return wanted, nil
}

// resolveCollision handles an existing revision with the wanted one's name: it is the wanted one,
// created before a restart and not cached yet, or another one.
func (k Keeper) resolveCollision(ctx context.Context, owner client.Object, wanted *appsv1.ControllerRevision) (*appsv1.ControllerRevision, error) {
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

// Trim deletes up to surplus revisions that are not in use, the lowest numbers first.
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

// Delete deletes the revision, but not another one of its name. It returns no error if the
// revision does not exist.
func (k Keeper) Delete(ctx context.Context, owner client.Object, revision *appsv1.ControllerRevision) error {
	err := k.Client.Delete(ctx, revision.DeepCopy(), client.Preconditions{UID: &revision.UID})
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	k.Ledger.Deleted(owner, revision)
	return nil
}

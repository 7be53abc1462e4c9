// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// validate returns what is wrong with a configuration, or nil. The package that uses a field parses it; validate calls the
// same parser, so that a mistake is found at the start.
func validate(c *kubeletv1beta1.KubeletConfiguration) error {
	return errors.Join(
		atLeast("maxPods", int64(c.MaxPods), 0),
		atLeast("nodeLeaseDurationSeconds", int64(c.NodeLeaseDurationSeconds), 1),
		atLeast("nodeStatusMaxImages", int64(*c.NodeStatusMaxImages), -1),
		atLeast("containerLogMaxFiles", int64(*c.ContainerLogMaxFiles), 2),
		positiveQuantity("containerLogMaxSize", c.ContainerLogMaxSize),
		imageGC(c),
	)
}

func atLeast(field string, value, minimum int64) error {
	if value < minimum {
		return fmt.Errorf("%s is %d, and must be at least %d", field, value, minimum)
	}
	return nil
}

// imageGC checks when images are removed.
func imageGC(c *kubeletv1beta1.KubeletConfiguration) error {
	high, low := *c.ImageGCHighThresholdPercent, *c.ImageGCLowThresholdPercent
	youngest, oldest := c.ImageMinimumGCAge.Duration, c.ImageMaximumGCAge.Duration
	switch {
	case high < 0 || high > 100:
		return fmt.Errorf("imageGCHighThresholdPercent is %d, and must be between 0 and 100", high)
	case low < 0 || low >= high:
		return fmt.Errorf("imageGCLowThresholdPercent is %d, and must be at least 0 and less than imageGCHighThresholdPercent, which is %d", low, high)
	case youngest < 0:
		return fmt.Errorf("imageMinimumGCAge is %v, and must not be negative", youngest)
	case oldest != 0 && oldest <= youngest:
		return fmt.Errorf("imageMaximumGCAge is %v, and must be 0 or greater than imageMinimumGCAge, which is %v", oldest, youngest)
	}
	return nil
}

func positiveQuantity(field, value string) error {
	if quantity, err := resource.ParseQuantity(value); err != nil || quantity.Sign() <= 0 {
		return fmt.Errorf("%s is %q, and must be a positive quantity such as 10Mi", field, value)
	}
	return nil
}

// Copyright The Kindred Authors.
// SPDX-License-Identifier: Apache-2.0

// Package check is the language in which all kinds write their validation.
//
// A function that checks a part of an object takes a Checker first, then the value,
// then its path, and reports what is wrong:
//
//	func validatePort(c *check.Checker, port *corev1.ServicePort, path *field.Path) {
//		c.PortNumber(path.Child("port"), port.Port)
//		check.RequiredOneOf(c, path.Child("protocol"), port.Protocol, protocols...)
//		if port.NodePort != 0 {
//			c.Forbidden(path.Child("nodePort"), "may not be used when `type` is 'ClusterIP'")
//		}
//	}
//
// The rules of a kind (generic.Kind) have the same form; the strategy makes the Checker:
//
//	func validateService(_ context.Context, c *check.Checker, s *corev1.Service) {
//		validatePorts(c, s.Spec.Ports, specPath.Child("ports"))
//	}
//
// Run returns the errors of rules to a caller that has no Checker. Passes guards rules that make
// sense only for a value that other rules accept.
//
// The package has two kinds of functions: those that report an error (Required,
// Invalid, Forbidden, Duplicate, TooLong, TooMany, Add), and those that check a value
// by a rule that several kinds share (DNSLabel, Immutable, OneOf, Unique). Rules, types
// of errors and details are upstream's, and so is the order of errors: clients match
// on them.
package check

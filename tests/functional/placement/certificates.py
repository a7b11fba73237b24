"""Certificates for tests: an authority, and what it signs."""

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

SIGNS = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)
"""The use of an authority's key."""


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as files in PEM form."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates, which it leaves in ``folder``."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder, self._name = (
            folder,
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
        )
        self._key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.now(datetime.UTC)
        made = self._builder(
            self._name,
            self._key,
            now - datetime.timedelta(days=900),
            now + datetime.timedelta(days=900),
        )
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        # What RFC 5280 asks for, because Python 3.13 and newer accept no other certificates.
        made = made.add_extension(SIGNS, critical=True).add_extension(
            x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False
        )
        self.bundle = folder / f"{name}.pem"
        self.bundle.write_bytes(
            made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        )

    def _builder(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        start: datetime.datetime,
        end: datetime.datetime,
    ) -> x509.CertificateBuilder:
        return x509.CertificateBuilder(
            self._name, subject, key.public_key(), x509.random_serial_number(), start, end
        )

    def pair(
        self, name: str, *, address: str = "127.0.0.1", days: int = 30, names_issuer: bool = True
    ) -> Pair:
        """A certificate for an address; with negative ``days``, one that ended so long ago; without
        ``names_issuer``, one that lacks the key identifier of its issuer.
        """
        key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = self._builder(
            subject, key, now - datetime.timedelta(days=800), now + datetime.timedelta(days=days)
        )
        made = made.add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))]),
            critical=False,
        )
        if names_issuer:
            made = made.add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        pair = Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        pair.certificate.write_bytes(
            made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        )
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return pair

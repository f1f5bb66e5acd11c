# SPDX-License-Identifier: Apache-2.0
"""Certificates for tests, made with the openssl program."""
import pathlib
import subprocess


def openssl(*args):
    subprocess.run(["openssl", *map(str, args)], check=True, capture_output=True)


class Authority:
    """A self-signed root in directory `where`, which signs what it is asked to."""

    def __init__(self, where, name):
        self.where = pathlib.Path(where)
        self.name = name
        self.key = self._key(name)
        self.pem = self.where / f"{name}.pem"
        openssl("req", "-x509", "-new", "-key", self.key, "-subj", f"/CN={name}", "-days", "30",
                "-out", self.pem, "-addext", "keyUsage=critical,keyCertSign")

    def _key(self, name):
        path = self.where / f"{name}.key"
        openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", path)
        return path

    def _sign(self, name, extensions, days="10"):
        key, request, pem = self._key(name), self.where / f"{name}.csr", self.where / f"{name}.pem"
        config = self.where / f"{name}.ext"
        config.write_text("\n".join(extensions + ["subjectKeyIdentifier=hash",
                                                  "authorityKeyIdentifier=keyid"]))
        openssl("req", "-new", "-key", key, "-subj", f"/CN={name}", "-out", request)
        openssl("x509", "-req", "-in", request, "-CA", self.pem, "-CAkey", self.key,
                "-CAcreateserial", "-days", days, "-extfile", config, "-out", pem)
        return pem, key

    def intermediate(self, name):
        return self._sign(name, ["basicConstraints=critical,CA:TRUE,pathlen:0",
                                 "keyUsage=critical,keyCertSign"])

    def server(self, name, hosts, addresses=()):
        names = [f"DNS:{h}" for h in hosts] + [f"IP:{a}" for a in addresses]
        return self._sign(name, ["subjectAltName=" + ",".join(names),
                                 "extendedKeyUsage=serverAuth"])

    def client(self, name):
        return self._sign(name, ["extendedKeyUsage=clientAuth"])
